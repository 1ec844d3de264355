"""What a subscriber says of itself: where its lanes are, and what it did not import."""

from dataclasses import dataclass

from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.wire.messages import Status
from packhorse_services.pipeline.errors import TaskRefused

_MOST_STATUSES = 1_000_000
_KNOWN = "SELECT to_regclass('bookkeeping.joined_snapshot') IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's position; it has not imported everything up to `started`."""

    agent: str
    offset: int
    started: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The last snapshot that was loaded into the database, by its own record."""

    id: str
    offset: int
    agents: tuple[str, ...]
    left_out: str
    """Which packages up to there are not in it, as in a `Snapshot`."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything in the subscriber's own database that says what its content must be."""

    journal_id: str
    lanes: tuple[Lane, ...]
    decided: tuple[tuple[str, int, bool], ...] = ()
    """Publisher agent, offset and whether it was imported, as far as it still remembers."""
    joined: Joined | None = None
    """None also when nothing is known: it joined before databases said so."""

    @property
    def agents(self) -> list[str]:
        """The publisher agents that it follows."""
        return [lane.agent for lane in self.lanes]

    @property
    def added(self) -> tuple[Lane, ...]:
        """The lanes that began after the snapshot that it is known to have joined by."""
        known = set(self.joined.agents) if self.joined else set(self.agents)
        return tuple(lane for lane in self.lanes if lane.agent not in known)

    @property
    def continued(self) -> tuple[Lane, ...]:
        """The other lanes."""
        return tuple(lane for lane in self.lanes if lane not in self.added)

    @property
    def lowest(self) -> int:
        """The offset up to which every lane is that was not added."""
        return min(lane.offset for lane in self.continued or self.lanes)

    @property
    def highest(self) -> int:
        """The highest offset that any lane has."""
        return max(lane.offset for lane in self.lanes)


def read_situation(connection: Connection) -> Situation:
    """Return the situation in the caller's transaction, the one that content is read in.

    Raises `TaskRefused` when there is nothing to compare with.
    """
    act_as(connection, BOOKKEEPER)
    rows = connection.execute(
        "SELECT publisher_agent, log_offset, started_offset, journal_id "
        "FROM bookkeeping.position ORDER BY publisher_agent"
    ).fetchall()
    if not rows:
        raise TaskRefused("it has no lane yet, so it has imported nothing")
    journals = {journal_id for *_, journal_id in rows}
    if len(journals) > 1:
        raise TaskRefused("its lanes follow different journals (JOURNAL_MISMATCH); reset them")
    lanes = tuple(Lane(agent, offset, started) for agent, offset, started, _ in rows)
    journal_id = journals.pop()
    return Situation(journal_id, lanes, _decided(connection), _joined(connection, journal_id))


def _joined(connection: Connection, journal_id: str) -> Joined | None:
    """Return the snapshot of this journal that was loaded, when the database has a record of it."""
    [(known,)] = connection.execute(_KNOWN).fetchall()
    if not known:
        return None  # no program of a version that records it has been here
    row = connection.execute(
        "SELECT snapshot_id, log_offset, publisher_agents, left_out "
        "FROM bookkeeping.joined_snapshot WHERE journal_id = %s",
        (journal_id,),
    ).fetchone()
    return None if row is None else Joined(row[0], row[1], tuple(row[2]), row[3])


def _decided(connection: Connection) -> tuple[tuple[str, int, bool], ...]:
    """Return its own statuses: those that are not sent yet, and older ones that it still has."""
    rows = connection.execute(
        "SELECT status.publisher_agent, status.log_offset, status.status "
        "FROM bookkeeping.status JOIN bookkeeping.position USING (publisher_agent) "
        "WHERE status.log_offset <= position.log_offset "
        "AND status.journal_id IN (position.journal_id, '') ORDER BY 1, 2 LIMIT %s",
        (_MOST_STATUSES + 1,),
    ).fetchall()
    if len(rows) > _MOST_STATUSES:
        raise TaskRefused(f"it has more than {_MOST_STATUSES} statuses to send; let it send them")
    imported = Status.IMPORTED.value
    return tuple((agent, offset, status == imported) for agent, offset, status in rows)
