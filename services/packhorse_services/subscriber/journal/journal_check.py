"""Whether the journal is still that of a position, and where a new subscription starts."""

import enum

from psycopg import Connection

from packhorse.messaging.api import Bounds, Journal
from packhorse_services.subscriber.journal import position as positions
from packhorse_services.subscriber.journal.arrivals import Mark, mark_of, package_id_of
from packhorse_services.subscriber.journal.failures import Fenced, Gap, JournalMismatch
from packhorse_services.subscriber.journal.position import Position


class StartPolicy(enum.Enum):
    """Where a subscription begins that this database has no position of (R13)."""

    EARLIEST = "earliest"
    OLDEST = "oldest"
    """What is left in the log; when that is not everything, the subscription is shown as
    incomplete."""
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
    """Return the subscription's position, which is created for a new subscription.

    Raises `Fenced` when the position is another epoch's, and `Gap` for a new subscription that is
    to begin with a snapshot, or with packages that the log has forgotten: loading a snapshot gives
    it its position.
    """
    stored = positions.load(connection, agent)
    if stored is None and start is StartPolicy.SNAPSHOT:
        raise Gap(f"the subscription of {agent} is new and is to begin with a snapshot")
    if stored is None:
        first = _first(journal, topic, agent, start)
        incomplete = first.offset >= 0
        stored = Position(agent, journal.identity(topic), epoch, first, first.offset, incomplete)
        positions.create(connection, stored)
    if stored.epoch != epoch:
        raise Fenced(f"the position of {agent} is of epoch {stored.epoch}, not {epoch}")
    return stored


def _first(journal: Journal, topic: str, agent: str, start: StartPolicy) -> Mark:
    bounds = journal.bounds(topic)
    if start is StartPolicy.EARLIEST and bounds.oldest > 0:
        raise Gap(
            f"{topic} begins at {bounds.oldest}, and this database has imported nothing of {agent} "
            "from below; fill it from a snapshot (PACKHORSE_START=snapshot), or from a copy of "
            "another subscriber, or take what is left and be shown as incomplete "
            "(PACKHORSE_START=oldest)"
        )
    if start in (StartPolicy.EARLIEST, StartPolicy.OLDEST):
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
    if record is not None and record.damage:
        return  # it proves neither that it is the one, nor another
    found = package_id_of(record.headers) if record else ""
    if found != position.mark.package_id:
        raise JournalMismatch(
            f"offset {position.offset} of {topic} holds package {found!r}, but this database has "
            f"imported {position.mark.package_id!r} from there"
        )


def package_at(journal: Journal, topic: str, offset: int) -> str | None:
    """Return the id of the package that is at an offset now; None when it is not known."""
    record = journal.read_at(topic, offset)
    return None if record is None or record.damage else package_id_of(record.headers)
