"""Ending attempts: every write has the claim's epoch, or changes nothing.

All functions are called in a READ COMMITTED transaction as the bookkeeper.
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.event_store import record
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.store import statistics
from packhorse.jobs.store.claims import Claim
from packhorse.jobs.store.ending_rows import (
    claim_of,
    finish_waiting,
    lock_claimed,
    still_active,
    write,
)
from packhorse.jobs.store.endings import EndDecision, HeldJob, How, decide
from packhorse.jobs.store.given import read_jobs
from packhorse.jobs.store.notes import NOTHING_SAID, Notes, note, stored_text
from packhorse.jobs.store.notifications import CANCELLED, REMOVED, notification
from packhorse.jobs.store.queues import notify_workers

logger = logging.getLogger(__name__)

_HOW = {Outcome.OK: How.OK, Outcome.FAILED: How.FAILED, Outcome.CANCEL: How.CANCEL}


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended, and how. `Outcome.ASYNC` is no end."""

    claim: Claim
    result: Result
    notes: Notes = NOTHING_SAID


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of it."""

    claim: Claim
    state: JobState | None
    """QUEUED: it is tried again, or runs once more; None: the attempt was lost before."""


def finish(connection: Connection, ended: Sequence[Ended], *, wait: bool = True) -> list[Ending]:
    """End attempts; return what came of each, in the same order. Writes statistics.

    Without `wait`, what a transaction holds just now (`claims.check`) stays ACTIVE: try again.

    Notifies FINISHED, FAILED (it will be tried again) or CANCELLED. In one transaction with the
    work, and rolled back when the state is None, it makes the work's effect happen once.
    """
    results = {one.claim: one.result for one in ended}
    held = lock_claimed(connection, list(results), wait=wait)
    said = [(one.claim, one.notes) for one in ended if one.notes.is_something]
    if said:
        note(connection, said)  # once all are locked, in the order that everybody has

    def decided(one: HeldJob) -> EndDecision:
        result = results[claim_of(one)]
        delay = result.retry_delay
        return decide(
            one,
            _HOW[result.outcome],
            stored_text(result.message),
            _jitter(),
            None if delay is None else delay.total_seconds(),
            lengthens=result.lengthens,
        )

    return _end(connection, list(results), held, decided)


def time_out(connection: Connection, claim: Claim, reason: str) -> Ending:
    """End an attempt that takes too long, as a failure; its thread loses the job.

    State ACTIVE: a transaction holds the attempt just now (`claims.check`); try again.
    """
    held = lock_claimed(connection, [claim], wait=False)

    def decided(one: HeldJob) -> EndDecision:
        return decide(one, How.TIMED_OUT, stored_text(reason), _jitter())

    [ending] = _end(connection, [claim], held, decided)
    return ending


def release(
    connection: Connection, claims: Sequence[Claim], reason: str, *, begun: bool = True
) -> list[Ending]:
    """Give attempts back; they are not counted. Those that were `begun` are flagged `retry`."""

    def decided(one: HeldJob) -> EndDecision:
        how = How.RELEASED if begun else How.UNBEGUN
        return decide(one, how, stored_text(reason), _jitter())

    return _end(connection, claims, lock_claimed(connection, claims), decided)


def request_stop(connection: Connection, numbers: Sequence[int]) -> list[int]:
    """Ask jobs that are ACTIVE to stop, on whatever instance; return those that were asked.

    Workers are notified, and see it with their next look (`leases.holdings`). What was given again
    meanwhile is not done either.
    """
    rows = connection.execute(
        "UPDATE jobs.job SET stop_requested = true, again = NULL WHERE number IN (SELECT number "
        "FROM jobs.job WHERE number = ANY(%s) AND state = 'ACTIVE' ORDER BY number FOR UPDATE) "
        "RETURNING number",  # locked in the order that all have, or two would wait for each other
        (list(numbers),),
    )
    requested = sorted(number for (number,) in rows)
    if requested:
        notify_workers(connection)
    return requested


def end_waiting(
    connection: Connection,
    numbers: Sequence[int],
    state: JobState,
    reason: str,
    *,
    even_active: bool = False,
) -> list[Job]:
    """End jobs that are QUEUED, as STOPPED or DROPPED; return those that were, as they are now.

    With `even_active` also those that are ACTIVE: it waits for a transaction that holds one
    (`claims.check`), and whoever works on it has lost it, and is notified. Notifies CANCELLED, or
    REMOVED where DROPPED.
    """
    found = _lock_unfinished(connection, numbers, even_active)
    if not found:
        return []
    ended = [row["number"] for row in found]
    moved = [(row["number"], row["queue"], row["most"]) for row in found]
    finish_waiting(connection, moved, state, stored_text(reason))
    places = [(row["queue"], row["topic"]) for row in found]
    statistics.add(connection, statistics.of_ended(places, state, found[-1]["now"]))
    jobs = read_jobs(connection, ended)
    kind = REMOVED if state is JobState.DROPPED else CANCELLED
    record(connection, [notification(kind, job, "", reason) for job in jobs.values()])
    if even_active:
        notify_workers(connection)
    return [jobs[number] for number in ended]


def _lock_unfinished(
    connection: Connection, numbers: Sequence[int], even_active: bool
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT j.number, j.topic, t.queue, clock_timestamp() AS now, "
            "coalesce(j.max_retries, q.max_retries) AS most FROM jobs.job j "
            "JOIN jobs.topic t ON t.topic = j.topic JOIN jobs.queue q ON q.name = t.queue "
            "WHERE j.number = ANY(%s) AND (j.state = 'QUEUED' OR %s) "
            "ORDER BY j.number FOR UPDATE OF j",
            (list(numbers), even_active),
        )
        return cursor.fetchall()


def end_lost(connection: Connection, held: Sequence[HeldJob]) -> list[EndDecision]:
    """End attempts, locked, whose worker has lost its lease; they count."""
    reason = "its worker's lease was over: the process ended, or was paused"
    decisions = [decide(one, How.LOST, reason, 0.0) for one in held]
    _write(connection, decisions)
    return decisions


def _end(
    connection: Connection,
    claims: Sequence[Claim],
    held: dict[Claim, HeldJob],
    decided: Callable[[HeldJob], EndDecision],
) -> list[Ending]:
    decisions = {claim: decided(one) for claim, one in held.items()}
    _write(connection, list(decisions.values()))
    missing = [claim for claim in claims if claim not in decisions]
    active = still_active(connection, missing) if missing else set()
    states = {claim: one.state for claim, one in decisions.items()}
    states |= dict.fromkeys(active, JobState.ACTIVE)
    return [Ending(claim, states.get(claim)) for claim in claims]


def _write(connection: Connection, decisions: Sequence[EndDecision]) -> None:
    with connection.pipeline():
        write(connection, decisions)
    for decision in decisions:
        if decision.result is JobState.GIVEN_UP:
            held = decision.held
            logger.warning(
                "job %d of %s was given up after %d attempts: %s",
                held.number,
                held.topic,
                held.attempts,
                decision.message or decision.how.value,
                extra=_shown(decision),
            )


def _shown(decision: EndDecision) -> dict[str, object]:
    held = decision.held
    return {
        "job": held.number,
        "topic": held.topic,
        "job_id": held.id,
        "attempts": held.attempts,
        "how": decision.how.value,
        "reason": decision.message,
    }


def _jitter() -> float:
    return random.random()  # noqa: S311
