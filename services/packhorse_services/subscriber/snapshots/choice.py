"""Which snapshot a database may take: one that the journal continues, and nobody's wishes undo."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.messaging.api import Journal
from packhorse.snapshots.snapshot import Snapshot
from packhorse.snapshots.store import usable
from packhorse_services.subscriber.arrivals import Mark
from packhorse_services.subscriber.failures import Gap, JournalMismatch
from packhorse_services.subscriber.journal_check import verify
from packhorse_services.subscriber.position import Position

logger = logging.getLogger(__name__)

_TOLD_MS = 600_000
"""How long before a snapshot was made a removal must be, so that its maker knew of it.

Between them lie two clocks and the archive's delay; this is more than all of that.
"""

_REMOVED = """
    SELECT max(log_offset), (extract(epoch FROM max(decided_at)) * 1000)::bigint
    FROM bookkeeping.status
    WHERE status <> 'IMPORTED' AND journal_id = %s AND publisher_agent = ANY(%s)
"""


class NoSnapshot(Gap):
    """No snapshot is there that this database may take; the text says which one would do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a snapshot must be for this database now.

    `subscribers` are those for whom it may be made, the best first; "" is everybody.
    """

    journal_id: str
    agents: tuple[str, ...]
    subscribers: tuple[str, ...]
    at_least: int
    made_after_ms: int = 0

    @property
    def advice(self) -> str:
        """What to do when there is none."""
        late = ", made 10 minutes after the last removal here" if self.made_after_ms else ""
        command = "".join(f" --agent {agent}" for agent in self.agents)
        if "" not in self.subscribers:
            command += f" --subscriber {self.subscribers[-1]}"
        return (
            f"it needs a snapshot of {','.join(self.agents)} at offset {self.at_least} or later"
            f"{late}; make one: packhorse pipeline snapshot{command}"
        )


def wanted(
    connection: Connection,
    journal: Journal,
    topic: str,
    agents: Sequence[str],
    *,
    subscriber: str,
    wait_for: str | None,
) -> Wanted:
    """Return what a snapshot must be, by the journal and by what the database remembers.

    The journal must continue it. What this subscriber has removed must be left out of it, so it
    is then made for this subscriber, later than the removals and not below them: going back
    there would import what was removed. One that waits for a golden subscriber may also take
    what that one must have, and nobody else's.
    """
    journal_id = journal.identity(topic)
    at_least = max(0, journal.bounds(topic).oldest - 1)
    rows = connection.execute(_REMOVED, (journal_id, list(agents))).fetchall()
    removed_at, decided_ms = rows[0]
    if removed_at is not None:
        return Wanted(
            *(journal_id, tuple(agents), (subscriber,)),
            at_least=max(at_least, removed_at),
            made_after_ms=decided_ms + _TOLD_MS,
        )
    others = (subscriber, wait_for) if wait_for else (subscriber, "")
    return Wanted(journal_id, tuple(agents), others, at_least)


def choose(
    blobs: BlobStore,
    journal: Journal,
    topic: str,
    wish: Wanted,
    failures: Mapping[str, int],
) -> Snapshot:
    """Return the best snapshot: with the fewest failures here, then made for us, then the newest.

    Raises `NoSnapshot`, and what journal and blob store raise.
    """
    best: Snapshot | None = None
    for found in usable(
        blobs,
        journal_id=wish.journal_id,
        publisher_agents=wish.agents,
        subscribers=wish.subscribers,
        at_least=wish.at_least,
    ):
        if found.made_ms < wish.made_after_ms or not _continues(journal, topic, found):
            continue
        if best is None or _rank(found, wish, failures) < _rank(best, wish, failures):
            best = found
    if best is None:
        raise NoSnapshot(wish.advice)
    return best


def _rank(snapshot: Snapshot, wish: Wanted, failures: Mapping[str, int]) -> tuple[int, int, int]:
    preferred = wish.subscribers.index(snapshot.subscriber)
    return failures.get(snapshot.id, 0), preferred, -snapshot.offset


def _continues(journal: Journal, topic: str, snapshot: Snapshot) -> bool:
    """Tell whether the log goes on behind the snapshot, from the record that it names (R24)."""
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
