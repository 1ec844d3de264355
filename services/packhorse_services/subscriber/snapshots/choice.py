"""Which snapshot a database may take: one that the journal continues, and nobody's wishes undo."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.messaging.api import Journal
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.snapshots.store import usable
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Gap, JournalMismatch
from packhorse_services.subscriber.journal.journal_check import verify
from packhorse_services.subscriber.journal.position import Position

logger = logging.getLogger(__name__)

# What was skipped was decided by the golden one: one that still waits finds it left out there.
_REMOVED = """
    SELECT publisher_agent, subscriber, max(log_offset),
        (extract(epoch FROM max(decided_at)) * 1000)::bigint
    FROM bookkeeping.status
    WHERE journal_id = %(journal_id)s AND publisher_agent = ANY(%(agents)s)
    AND status NOT IN ('IMPORTED', 'DUPLICATE') AND NOT left_out
    AND NOT (%(waits)s AND status = 'SKIPPED')
    GROUP BY publisher_agent, subscriber ORDER BY subscriber
"""
_ANEW = "begin with an empty database instead, or with a copy of another subscriber's"


class NoSnapshot(Gap):
    """No snapshot is there that this database may take; the text says which one would do."""


@dataclass(frozen=True, slots=True)
class RequiredSnapshot:
    """What a snapshot must be for this database now.

    `subscribers` are those for whom it may be made, the best first; "" is everybody. Its maker
    must have heard of the removals here: `removed` has the time of the last one of each agent.
    """

    journal_id: str
    agents: tuple[str, ...]
    subscribers: tuple[str, ...]
    at_least: int
    removed: Mapping[str, int] = field(default_factory=dict)
    decided: bool = False
    """Whether the subscriber for whom it is made must have decided all that it holds."""

    def allows(self, snapshot: ContentSnapshot) -> bool:
        """Return whether the snapshot's maker had heard enough."""
        reported = {one.publisher_agent: one for one in snapshot.told}
        if self.decided and not all(
            agent in reported and reported[agent].up_to >= snapshot.offset for agent in self.agents
        ):
            return False
        return all(
            agent in reported and reported[agent].removed_ms >= decided_ms
            for agent, decided_ms in self.removed.items()
        )

    @property
    def advice(self) -> str:
        """What to do when there is none."""
        late = ", which knows of the last removal here" if self.removed else ""
        if self.decided:
            late = f", all of it decided by {self.subscribers[0]} and archived"
        command = "".join(f" --agent {agent}" for agent in self.agents)
        if "" not in self.subscribers:
            command += f" --subscriber {self.subscribers[-1]}"
        return (
            f"it needs a snapshot of {','.join(self.agents)} at offset {self.at_least} or later"
            f"{late}; make one: packhorse pipeline archive && packhorse pipeline snapshot{command}"
        )


def wanted(
    connection: Connection,
    journal: Journal,
    topic: str,
    agents: Sequence[str],
    *,
    subscriber: str,
    wait_for: str | None,
) -> RequiredSnapshot:
    """Return what a snapshot must be, by the journal and by what the database remembers.

    The journal must continue it. What this subscriber has removed must be left out of it, so it
    is then made for this subscriber, by somebody who knew of the removals, and not below them:
    going back there would import what was removed. One that waits for a golden subscriber takes
    only what that one must have (ADR 0014). Raises `NoSnapshot` when none can leave out what was
    removed here: by both of them, or in the database of which this one is a copy (R12).
    """
    journal_id = journal.identity(topic)
    at_least = max(0, journal.bounds(topic).oldest - 1)
    requested = {"journal_id": journal_id, "agents": list(agents), "waits": wait_for is not None}
    rows = connection.execute(_REMOVED, requested).fetchall()
    _require_own([(by, offset) for _, by, offset, _ in rows], subscriber, wait_for)
    if wait_for:
        return RequiredSnapshot(journal_id, tuple(agents), (wait_for,), at_least, decided=True)
    if rows:
        at_least = max(at_least, *(offset for _, _, offset, _ in rows))
        removed = {agent: decided_ms for agent, _, _, decided_ms in rows}
        return RequiredSnapshot(journal_id, tuple(agents), (subscriber,), at_least, removed=removed)
    return RequiredSnapshot(journal_id, tuple(agents), (subscriber, ""), at_least)


def _require_own(
    removals: Iterable[tuple[str, int]], subscriber: str, wait_for: str | None
) -> None:
    """Refuse what no snapshot leaves out: removals by others, or while one waits for another."""
    for by, offset in removals:
        if by != subscriber or wait_for:
            also = f", and what {wait_for} removed" if wait_for else ""
            raise NoSnapshot(f"no snapshot leaves out what {by} removed at {offset}{also}; {_ANEW}")


def choose(
    blobs: BlobStore,
    journal: Journal,
    topic: str,
    requirement: RequiredSnapshot,
    failures: Mapping[str, int],
) -> ContentSnapshot:
    """Return the best snapshot: with the fewest failures here, then made for us, then the newest.

    Raises `NoSnapshot`, and what journal and blob store raise.
    """
    best: ContentSnapshot | None = None
    for found in usable(
        blobs,
        journal_id=requirement.journal_id,
        publisher_agents=requirement.agents,
        subscribers=requirement.subscribers,
        at_least=requirement.at_least,
    ):
        if not (requirement.allows(found) and _continues(journal, topic, found)):
            continue
        if best is None or _rank(found, requirement, failures) < _rank(best, requirement, failures):
            best = found
    if best is None:
        raise NoSnapshot(requirement.advice)
    return best


def _rank(
    snapshot: ContentSnapshot, requirement: RequiredSnapshot, failures: Mapping[str, int]
) -> tuple[int, int, int]:
    preferred = requirement.subscribers.index(snapshot.subscriber)
    return failures.get(snapshot.id, 0), preferred, -snapshot.offset


def _continues(journal: Journal, topic: str, snapshot: ContentSnapshot) -> bool:
    """Return whether the log goes on behind the snapshot, from the record that it names (R24)."""
    mark = Mark(snapshot.offset, snapshot.package_id)
    try:
        verify(journal, topic, Position("", snapshot.journal_id, 0, mark))
    except (Gap, JournalMismatch) as error:
        logger.warning(
            "a snapshot is of another history than the journal",
            extra={"snapshot": snapshot.id, "offset": snapshot.offset, "error": str(error)},
        )
        return False
    return True
