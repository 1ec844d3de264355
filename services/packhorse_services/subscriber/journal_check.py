"""Whether the journal is still the one that a position speaks of, and where a new lane starts."""

import enum

from psycopg import Connection

from packhorse.messaging.api import Bounds, Journal
from packhorse_services.subscriber import position as positions
from packhorse_services.subscriber.arrivals import Mark, mark_of, package_id_of
from packhorse_services.subscriber.failures import Fenced, Gap, JournalMismatch
from packhorse_services.subscriber.position import Position


class StartPolicy(enum.Enum):
    """Where a lane begins that this database has no position of (R13)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    SNAPSHOT = "snapshot"


def place(
    connection: Connection,
    journal: Journal,
    topic: str,
    agent: str,
    *,
    epoch: int,
    start: StartPolicy,
) -> Position:
    """Return the lane's position, which is created for a new lane.

    Raises `Fenced` when the position is another epoch's, and `Gap` for a new lane that is to begin
    with a snapshot: loading one gives it its position.
    """
    stored = positions.load(connection, agent)
    if stored is None and start is StartPolicy.SNAPSHOT:
        raise Gap(f"the lane of {agent} is new and is to begin with a snapshot")
    if stored is None:
        first = _first(journal, topic, start)
        stored = Position(agent, journal.identity(topic), epoch, first, first.offset)
        positions.create(connection, stored)
    if stored.epoch != epoch:
        raise Fenced(f"the position of {agent} is of epoch {stored.epoch}, not {epoch}")
    return stored


def _first(journal: Journal, topic: str, start: StartPolicy) -> Mark:
    bounds = journal.bounds(topic)
    if start is StartPolicy.EARLIEST:
        return Mark(bounds.oldest - 1, "")
    last = journal.read_at(topic, bounds.next - 1)
    return mark_of(last) if last else Mark(bounds.next - 1, "")


def verify(journal: Journal, topic: str, position: Position) -> None:
    """Check that the record at the position is the one that was processed (R24).

    Raises what `verify_log` raises, and `JournalMismatch` for another record.
    """
    bounds = verify_log(journal, topic, position)
    if position.mark.package_id and bounds.oldest <= position.offset:
        _compare(journal, topic, position)


def verify_log(journal: Journal, topic: str, position: Position) -> Bounds:
    """Check that the log can hold what was and what comes, and return its bounds.

    Raises:
        JournalMismatch: the topic is another one, or it ends before the position (R24).
        Gap: the log begins behind the package that comes next (R13).
    """
    if journal.identity(topic) != position.journal_id:
        raise JournalMismatch(f"{topic} was created anew since this database was filled from it")
    bounds = journal.bounds(topic)
    if position.offset >= bounds.next:
        raise JournalMismatch(
            f"{topic} ends at {bounds.next - 1}, before the stored offset {position.offset}"
        )
    if bounds.oldest > position.offset + 1:
        raise Gap(
            f"{topic} begins at {bounds.oldest}, but {position.offset + 1} is to be imported next; "
            "fill this database from a snapshot, or from a copy of another subscriber"
        )
    return bounds


def _compare(journal: Journal, topic: str, position: Position) -> None:
    record = journal.read_at(topic, position.offset)
    if record is None and journal.bounds(topic).oldest > position.offset:
        return  # trimmed since the bounds were read
    found = package_id_of(record.headers) if record else ""
    if found != position.mark.package_id:
        raise JournalMismatch(
            f"offset {position.offset} of {topic} holds package {found!r}, but this database has "
            f"imported {position.mark.package_id!r} from there"
        )
