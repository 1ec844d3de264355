"""Stopping, retrying and removing jobs, one or many, wherever they are.

All functions with a connection are called in a READ COMMITTED transaction as the bookkeeper. What
`change_all` does not find in a state that allows it, it passes over.
"""

from collections.abc import Sequence
from enum import StrEnum

from psycopg import Connection

from packhorse.jobs.job import Job, JobState, WrongState
from packhorse.jobs.ledger.finding import get
from packhorse.jobs.store.adding import requeue_finished
from packhorse.jobs.store.finishing import end_waiting, request_stop
from packhorse.jobs.store.interventions import abandon, forget_finished

_TRIES = 5
"""Between a look at a job and its change the job may go on; it does so a few times in its life."""
_STOPPED, _REMOVED = "stopped on request", "removed on request"


class Change(StrEnum):
    """What can be done to a job, or to all that a filter means."""

    STOP = "STOP"
    """End it when it is QUEUED; ask its consumer to when it is ACTIVE."""
    RETRY = "RETRY"
    """Make it QUEUED again, from history."""
    REMOVE = "REMOVE"
    """End it as DROPPED when it is QUEUED; forget it when it is history."""
    ABANDON = "ABANDON"
    """As REMOVE, and when it is ACTIVE take it from whoever works on it."""


_FINAL = tuple(state for state in JobState if state.final)
_ALLOWED = {
    Change.STOP: (JobState.QUEUED, JobState.ACTIVE),
    Change.RETRY: _FINAL,
    Change.REMOVE: (JobState.QUEUED, *_FINAL),
    Change.ABANDON: tuple(JobState),
}


def allowed_states(what: Change | None) -> tuple[JobState, ...]:
    """Return the states in which a job can be changed so; all of them for None."""
    return tuple(JobState) if what is None else _ALLOWED[what]


def change(connection: Connection, what: Change, number: int) -> Job:
    """Change one job; return it as it is then, or as it was when it is forgotten.

    Raises `UnknownJob`, `WrongState`.
    """
    for _ in range(_TRIES):
        before = get(connection, number)
        if before.state not in allowed_states(what):
            raise WrongState(_refusal(what, before))
        if change_all(connection, what, [number]):
            is_forgotten = before.state.final and what is not Change.RETRY
            return before if is_forgotten else get(connection, number)
    raise WrongState(f"job {number} changes its state all the time; try again")


def change_all(connection: Connection, what: Change, numbers: Sequence[int]) -> set[int]:
    """Change jobs; return the numbers of those whose state allowed it."""
    numbers = sorted(numbers)  # everybody locks in this order
    if what is Change.STOP:
        ended = {job.number for job in end_waiting(connection, numbers, JobState.STOPPED, _STOPPED)}
        return ended | set(request_stop(connection, _rest(numbers, ended)))
    if what is Change.RETRY:
        return {job.number for job in requeue_finished(connection, numbers)}
    # History first: what is ended as DROPPED here must not be forgotten by the next line.
    done = forget_finished(connection, numbers, _REMOVED)
    rest = _rest(numbers, done)
    done |= {job.number for job in end_waiting(connection, rest, JobState.DROPPED, _REMOVED)}
    if what is Change.ABANDON:
        done |= abandon(connection, _rest(numbers, done), _REMOVED)
    return done


def _rest(numbers: Sequence[int], done: set[int]) -> list[int]:
    return [number for number in numbers if number not in done]


def _refusal(what: Change, job: Job) -> str:
    if what is Change.REMOVE:
        return f"job {job.number} is ACTIVE: stop it first, and remove it once it has ended"
    verb = "stopped" if what is Change.STOP else "retried"
    only = "QUEUED or ACTIVE" if what is Change.STOP else "finished"
    return f"job {job.number} is {job.state}: only a job that is {only} can be {verb}"
