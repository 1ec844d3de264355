"""Moving a stopped subscription to another offset; everything behind it is imported (R25).

What the subscription knew of packages above the new offset is forgotten; what it knew of those at
or below it stays or is read from the log again, or their repetitions would be imported over newer
content (R27). Of a producer the last package that was processed is known, and no earlier one: where
that is above the new offset, and what is below it has left the log, nothing of the producer is
known.
"""

from collections import deque
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from packhorse.errors import Permanent
from packhorse.messaging.api import Journal, Record
from packhorse.messaging.reading import read_range
from packhorse.wire.package_codec import AGENT_HEADER
from packhorse_services.subscriber.journal.arrivals import (
    Arrival,
    Mark,
    entry_of,
    mark_of,
    package_id_of,
)
from packhorse_services.subscriber.journal.failures import Fenced
from packhorse_services.subscriber.journal.sequences import HighWater, ImpossibleSequence

_MOST_IDS = 1_000_000
_LOCK_TIMEOUT = "500ms"


class ResetOutsideLog(Permanent):
    """The offset is neither in the log nor just before its oldest record."""


@dataclass(frozen=True, slots=True)
class ResetPoint:
    """The last package that a subscription is to have had."""

    agent: str
    journal_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where a subscription is to be, and what it has to know there."""

    agent: str
    journal_id: str
    mark: Mark
    high_water: HighWater
    package_ids: Collection[str] = ()


@dataclass(slots=True)
class _Seen:
    high_water: HighWater = field(default_factory=lambda: HighWater({}))
    package_ids: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_IDS))


def target(
    journal: Journal,
    topic: str,
    point: ResetPoint,
    *,
    remember: bool,
    check: Callable[[], None] = lambda: None,
) -> ResetTarget:
    """Read the log up to `point` as its subscription would have; bodies are left out.

    `remember` asks for the ids of the packages there too; what `check` raises now and then ends
    the reading. Raises `ResetOutsideLog`, and what the journal raises.
    """
    bounds, offset = journal.bounds(topic), point.offset
    if not bounds.oldest - 1 <= offset < bounds.next:
        raise ResetOutsideLog(
            f"the log holds {bounds.oldest} to {bounds.next - 1}, and {offset} is not just before "
            "or in it"
        )
    seen = _Seen()
    if bounds.oldest <= offset:
        reading = read_range(journal, topic, bounds.oldest, offset + 1, meanwhile=check)
        with closing(reading) as records:
            for record in records:
                _see(record, point.agent, seen, remember=remember)
    last = journal.read_at(topic, offset) if bounds.oldest <= offset else None
    mark = Mark(offset, package_id_of(last.headers) if last else "")
    return ResetTarget(point.agent, point.journal_id, mark, seen.high_water, seen.package_ids)


def _see(record: Record, agent: str, seen: _Seen, *, remember: bool) -> None:
    if record.headers.get(AGENT_HEADER) == agent.encode():
        mark = mark_of(record)
        if remember:
            seen.package_ids.append(mark.package_id)
        if entry := entry_of(Arrival(mark, record)):
            with suppress(ImpossibleSequence):
                seen.high_water.passes(entry, record.offset)


def lock_subscriptions(connection: Connection) -> None:
    """Keep all subscriptions where they are until the commit; the first thing that a reset does.

    Raises `LockNotAvailable` when one is importing for longer than a moment. A reset never waits
    long for a lock: it holds some already that subscriptions, or a takeover of the lease, wait for.
    """
    connection.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,))
    connection.execute("SELECT FROM bookkeeping.position ORDER BY publisher_agent FOR UPDATE")


def move(connection: Connection, new_epoch: int, to: ResetTarget) -> dict[str, Any]:
    """Move a subscription in the caller's transaction, under the epoch that `raise_epoch` gives.

    Returns what was changed, for the audit.
    """
    before = connection.execute(
        """
        SELECT log_offset, journal_id, started_offset FROM bookkeeping.position
        WHERE publisher_agent = %s FOR UPDATE
        """,
        (to.agent,),
    ).fetchone()
    offset = to.mark.offset
    known = before if before is not None and before[1] == to.journal_id else None
    _place(connection, new_epoch, to, _started(offset, known))
    if known is None or offset < known[0]:
        _forget(connection, to.agent, above=offset if known else -1)
    to.high_water.store(connection, to.agent)
    _remember(connection, to)
    changed = {"from": before[0] if before else None, "to": offset, "epoch": new_epoch}
    if before is not None and known is None:
        changed |= {"from_journal": before[1], "to_journal": to.journal_id}
    return changed


def forget_others(connection: Connection, agents: Collection[str]) -> None:
    """Delete the subscriptions of all other agents in the caller's transaction."""
    gone = connection.execute(
        "DELETE FROM bookkeeping.position WHERE publisher_agent <> ALL(%s) "
        "RETURNING publisher_agent",
        (list(agents),),
    ).fetchall()
    for (agent,) in gone:
        _forget(connection, agent, above=-1)


def raise_epoch(connection: Connection, epoch: int) -> int:
    """Give lease and subscriptions the next epoch, and return it; the last thing that a reset does.

    The lease can't be renewed until the commit. Every subscription of the database gets the new
    epoch, for they share the lease; an import that is under way under the old one can't commit
    (R25). Raises `Fenced` when `epoch` is not the lease's.
    """
    row = connection.execute(
        "UPDATE bookkeeping.lease SET epoch = epoch + 1 WHERE epoch = %s RETURNING epoch", (epoch,)
    ).fetchone()
    if row is None:
        raise Fenced("another worker has the lease of this database")
    connection.execute("UPDATE bookkeeping.position SET epoch = %s", (row[0],))
    return int(row[0])


def _started(offset: int, before: tuple[Any, ...] | None) -> int:
    """Return up to where the subscription has not imported everything.

    A jump forward leaves out what lies in between; a jump back below the start undoes it.
    """
    if before is None or offset > before[0]:
        return offset
    return min(int(before[2]), offset)


def _place(connection: Connection, epoch: int, to: ResetTarget, started: int) -> None:
    connection.execute(
        """
        INSERT INTO bookkeeping.position
            (publisher_agent, journal_id, epoch, log_offset, package_id, started_offset)
        VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (publisher_agent) DO UPDATE SET
            journal_id = excluded.journal_id, epoch = excluded.epoch,
            log_offset = excluded.log_offset, package_id = excluded.package_id,
            started_offset = excluded.started_offset, moved_at = clock_timestamp()
        """,
        (to.agent, to.journal_id, epoch, to.mark.offset, to.mark.package_id, started),
    )


def _forget(connection: Connection, agent: str, *, above: int) -> None:
    """Forget what was decided above an offset; it will be decided and reported anew."""
    for statement in (
        "DELETE FROM bookkeeping.attempt WHERE publisher_agent = %(agent)s",
        "DELETE FROM bookkeeping.applied_sequence WHERE publisher_agent = %(agent)s "
        "AND (log_offset IS NULL OR log_offset > %(above)s)",
        "DELETE FROM bookkeeping.applied_package WHERE publisher_agent = %(agent)s",
        "DELETE FROM bookkeeping.status WHERE publisher_agent = %(agent)s "
        "AND log_offset > %(above)s",
        "UPDATE bookkeeping.status_mark SET log_offset = least(log_offset, %(above)s) "
        "WHERE publisher_agent = %(agent)s",
    ):
        connection.execute(statement, {"agent": agent, "above": above})


def _remember(connection: Connection, to: ResetTarget) -> None:
    if to.package_ids:
        connection.execute(
            """
            INSERT INTO bookkeeping.applied_package (publisher_agent, package_id)
            SELECT %s, package_id FROM unnest(%s::text[]) AS known (package_id)
            WHERE package_id <> '' ON CONFLICT DO NOTHING
            """,
            (to.agent, list(to.package_ids)),
        )
