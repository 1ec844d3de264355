"""A subscription's position.

The row that says what is in this database, moved by compare-and-set (R25).

Connections act as the bookkeeper, in autocommit; the caller opens the transaction.
"""

from dataclasses import dataclass, replace

from psycopg import Connection

from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Fenced


@dataclass(frozen=True, slots=True)
class Position:
    """The last processed record of a subscription; `offset` -1 and no package id before the first.

    `started_offset` is where the subscription began: it has imported nothing up to there. It is
    incomplete unless a snapshot brought what was below.
    """

    agent: str
    journal_id: str
    epoch: int
    mark: Mark
    started_offset: int = -1
    incomplete: bool = False

    @property
    def offset(self) -> int:
        """The last processed offset."""
        return self.mark.offset


def load(connection: Connection, agent: str) -> Position | None:
    """Return the stored position of a subscription, or None for a new one."""
    row = connection.execute(
        """
        SELECT journal_id, epoch, log_offset, package_id, started_offset,
            started_offset >= 0 AND NOT EXISTS (
                SELECT FROM bookkeeping.joined_snapshot AS joined
                WHERE joined.journal_id = position.journal_id
                AND joined.log_offset = started_offset
                AND publisher_agent = ANY(publisher_agents))
        FROM bookkeeping.position WHERE publisher_agent = %s
        """,
        (agent,),
    ).fetchone()
    if row is None:
        return None
    journal_id, epoch, offset, package_id, *start = row
    return Position(agent, journal_id, epoch, Mark(offset, package_id), *start)


def create(connection: Connection, position: Position) -> None:
    """Store the first position of a subscription, and forget what an earlier one left.

    Raises `Fenced` when `position.epoch` is not the lease's.
    """
    with connection.transaction():
        created = connection.execute(
            """
            INSERT INTO bookkeeping.position
                (publisher_agent, journal_id, epoch, log_offset, package_id, started_offset)
            SELECT %s, %s, epoch, %s, %s, %s FROM bookkeeping.lease WHERE epoch = %s FOR SHARE
            """,
            (
                position.agent,
                position.journal_id,
                position.offset,
                position.mark.package_id,
                position.started_offset,
                position.epoch,
            ),
        )
        if created.rowcount != 1:
            raise Fenced("another worker has the lease of this database")
        for statement in _FORGET:
            connection.execute(statement, (position.agent,))


_FORGET = (
    "DELETE FROM bookkeeping.attempt WHERE publisher_agent = %s",
    "DELETE FROM bookkeeping.status WHERE publisher_agent = %s",
    "DELETE FROM bookkeeping.status_mark WHERE publisher_agent = %s",
)


def move(connection: Connection, position: Position, mark: Mark) -> Position:
    """Move to `mark` and return the new position; the first statement of an import (R25).

    Raises `Fenced` when epoch or offset are no longer those of `position`.
    """
    moved = connection.execute(
        """
        UPDATE bookkeeping.position
        SET log_offset = %s, package_id = %s, moved_at = clock_timestamp()
        WHERE publisher_agent = %s AND epoch = %s AND log_offset = %s
        """,
        (mark.offset, mark.package_id, position.agent, position.epoch, position.offset),
    )
    if moved.rowcount != 1:
        raise Fenced(f"the position of {position.agent} is no longer {position.offset}")
    return replace(position, mark=mark)
