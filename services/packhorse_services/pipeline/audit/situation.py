"""What a subscriber says of itself: where its lanes are, and what it did not import."""

from dataclasses import dataclass

from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.wire.messages import Status
from packhorse_services.pipeline.errors import TaskRefused

_MOST_STATUSES = 1_000_000


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's position; it has not imported everything up to `started`."""

    agent: str
    offset: int
    started: int


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything in the subscriber's own database that says what its content must be."""

    journal_id: str
    lanes: tuple[Lane, ...]
    decided: tuple[tuple[str, int, bool], ...] = ()
    """Publisher agent, offset and whether it was imported, as far as it still remembers."""

    @property
    def agents(self) -> list[str]:
        """The publisher agents that it follows."""
        return [lane.agent for lane in self.lanes]

    @property
    def lowest(self) -> int:
        """The offset up to which every lane is."""
        return min(lane.offset for lane in self.lanes)

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
    return Situation(journals.pop(), lanes, _decided(connection))


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
