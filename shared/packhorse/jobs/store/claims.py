"""Claiming jobs: an attempt belongs to one run of a worker, under an epoch.

All functions are called in a READ COMMITTED transaction as the bookkeeper, and it must commit
before a job is begun.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection, Cursor

from packhorse.jobs.event_store import record
from packhorse.jobs.job import Job, JobLost
from packhorse.jobs.queue import QueueType
from packhorse.jobs.store import claim_statements as statements
from packhorse.jobs.store.given import LEADER
from packhorse.jobs.store.leases import WorkerRun
from packhorse.jobs.store.notifications import START, notification
from packhorse.jobs.store.rows import job_cursor, job_of


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to one attempt, until its run's lease is over or somebody ends it."""

    number: int
    runtime_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that this run may begin."""

    claim: Claim
    job: Job
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a run would take from one queue."""

    queue: str
    topics: Sequence[str]
    """Known topics (`Layout.topics`) of the queue that it has consumers for."""
    places: int
    """How many jobs at most; of an ORDERED queue one is given."""
    unconsumed: Sequence[str] = ()
    """ORDERED: known topics of the queue that no live instance consumes; they don't hold it up.

    A topic that the run does not know yet does: its jobs may have come first.
    """
    turn: str = ""
    """TOPIC_ROUND_ROBIN: the topic that this run had last."""
    type: QueueType = field(kw_only=True)
    """As the run knows it; nothing is claimed when it has changed."""


def claim(
    connection: Connection,
    run: WorkerRun,
    requests: Sequence[ClaimRequest],
    *,
    led: Sequence[str] = (),
) -> list[Claimed]:
    """Claim jobs that may be begun now, the first in order of each queue. Notifies START.

    Nothing without a valid lease. `led`: topics of which this instance does the jobs that are
    `only_on` LEADER.
    Raises nothing of its own; jobs that others claim at the moment are passed over.
    """
    wanted = [request for request in requests if request.places > 0 and request.topics]
    if not wanted:
        return []
    given = {
        "runtime_id": run.runtime_id,
        "instance": run.instance,
        "places_for": ["", run.instance, *([LEADER] if led else [])],
        "led": list(led),
    }
    claimed = _claim(connection, given, wanted)
    record(
        connection,
        [notification(START, one.job, run.instance) for one in claimed],
        hint=False,
    )
    return claimed


def are_waiting(connection: Connection, requests: Sequence[ClaimRequest]) -> bool:
    """Return whether jobs of these topics are queued, which may be begun later without a hint."""
    topics = sorted({topic for request in requests for topic in request.topics})
    [(waiting,)] = connection.execute(statements.ARE_WAITING, {"topics": topics}).fetchall()
    return bool(waiting)


def promote(connection: Connection, topics: Sequence[str]) -> bool:
    """Let what was delayed until now be begun, at most `PROMOTED` jobs of each of these topics.

    Returns whether there may be more.
    """
    connection.execute(f"SELECT {statements.USE_INDEXES}")
    given = {"topics": list(topics)}
    promoted = connection.execute(statements.PROMOTE.encode(), given).rowcount
    return promoted >= statements.PROMOTED


def check(connection: Connection, held: Claim) -> None:
    """Hold the attempt until the transaction ends: nobody ends it before. Raises `JobLost`.

    Progress can be stored meanwhile.
    """
    found = connection.execute(
        "SELECT FROM jobs.job WHERE number = %s AND runtime_id = %s AND epoch = %s "
        "AND state = 'ACTIVE' FOR KEY SHARE",
        (held.number, held.runtime_id, held.epoch),
    ).fetchone()
    if found is None:
        raise lost(held)


def lost(held: Claim) -> JobLost:
    """Return what to raise when an attempt is no longer what it was."""
    return JobLost(f"job {held.number} is another attempt's now (this one had epoch {held.epoch})")


def _claim(
    connection: Connection, given: dict[str, Any], requests: Sequence[ClaimRequest]
) -> list[Claimed]:
    """Ask for all in one round trip; for the heads of ordered queues there are two more."""
    ordered = [request for request in requests if request.type is QueueType.ORDERED]
    topics = {topic for request in requests for topic in request.topics}
    with connection.pipeline():
        connection.execute(statements.PREPARE)
        connection.execute(statements.PROMOTE, {"topics": sorted(topics)})
        connection.execute(statements.OPEN, {"topics": sorted(topics)})
        cursors = [
            _ask(connection, statements.OF_TYPE[request.type], given | _of(request))
            for request in requests
            if request.type is not QueueType.ORDERED
        ]
        heads = _ask(connection, statements.HEADS, given | _heads(ordered)) if ordered else None
    claimed = [one for cursor in cursors for one in _claimed(cursor)]
    if heads is not None:
        claimable = {row["queue"] for row in heads.fetchall()}
        chosen = [request for request in ordered if request.queue in claimable]
        claimed += _claim_heads(connection, given, chosen) if chosen else []
    return claimed


def _claim_heads(
    connection: Connection, given: dict[str, Any], requests: Sequence[ClaimRequest]
) -> list[Claimed]:
    """Claim what is first in ordered queues, each locked by this transaction.

    The statement that looks once more begins after the locks are there: it sees every claim and
    every end that came before.
    """
    names = sorted(request.queue for request in requests)
    locked = {name for (name,) in connection.execute(statements.LOCK_QUEUES, (names,))}
    chosen = [request for request in requests if request.queue in locked]
    if not chosen:
        return []
    return _claimed(_ask(connection, statements.CLAIM_HEADS, given | _heads(chosen)))


def _of(request: ClaimRequest) -> dict[str, Any]:
    return {
        "queue": request.queue,
        "topics": list(request.topics),
        "places": request.places,
        "many": statements.OTHERS * request.places + statements.MARGIN,
        "turn": request.turn,
    }


def _heads(requests: Iterable[ClaimRequest]) -> dict[str, Any]:
    """Queues, what this run can do of them, and what does not hold them up."""
    mine = [(request.queue, topic) for request in requests for topic in request.topics]
    unconsumed = {topic for request in requests for topic in request.unconsumed}
    return {
        "queues": [request.queue for request in requests],
        "mine": [topic for _, topic in mine],
        "unconsumed": sorted(unconsumed),
    }


def _ask(connection: Connection, statement: str, given: dict[str, Any]) -> Cursor[dict[str, Any]]:
    return job_cursor(connection).execute(statement.encode(), given)


def _claimed(cursor: Cursor[dict[str, Any]]) -> list[Claimed]:
    """Return what was claimed, in the order in which it is to be begun."""
    with cursor:
        rows = sorted(cursor.fetchall(), key=lambda row: row["place"])
    return [
        Claimed(
            Claim(row["number"], row["runtime_id"], row["epoch"]), job_of(row), row["timeout_s"]
        )
        for row in rows
    ]
