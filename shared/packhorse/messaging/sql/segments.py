"""Segments: the tables that records live in, so that old ones leave by DROP instead of DELETE.

A partition's segments follow each other without a hole: each ends where the next one starts. The
last may be open for appends. Nobody writes to a closed segment and nobody reads below `oldest`,
so that dropping one waits for nobody and nobody waits for it.
"""

import logging
from dataclasses import dataclass

import psycopg
from psycopg import sql

logger = logging.getLogger(__name__)

_DROP_PATIENCE = "250ms"


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """A group that would take the open segment over either begins a new one."""

    bytes: int = 256 * 1024 * 1024
    records: int = 250_000

    def exceeded(self, size: int, count: int) -> bool:
        """Whether this much is too much for one segment."""
        return size > self.bytes or count > self.records


DEFAULT_LIMITS = SegmentLimits()


@dataclass(frozen=True, slots=True)
class SqlSegment:
    """One table of records: offsets from `start` up to, not including, `end`, if that is known."""

    partition_id: int
    start: int
    end: int | None = None

    @property
    def table(self) -> sql.Identifier:
        """The table's name."""
        return sql.Identifier("journal", f"records_{self.partition_id}_{self.start}")


def create_segment(connection: psycopg.Connection, segment: SqlSegment, size: int) -> None:
    """Make a new open segment for `size` bytes; the caller's transaction has moved the counter.

    The table belongs to the owner of the journal's tables, whoever appends.
    """
    connection.execute(
        "SELECT journal.begin_segment(%s, %s, %s)", (segment.partition_id, segment.start, size)
    )


def find_segment(
    connection: psycopg.Connection, partition_id: int, offset: int
) -> SqlSegment | None:
    """Return the segment that `offset` belongs to; None when it was dropped."""
    row = connection.execute(
        "SELECT first_offset, (SELECT min(n.first_offset) FROM journal.segment n"
        " WHERE n.partition_id = s.partition_id AND n.first_offset > s.first_offset)"
        " FROM journal.segment s WHERE partition_id = %s AND first_offset <= %s"
        " ORDER BY first_offset DESC LIMIT 1",
        (partition_id, offset),
    ).fetchone()
    return None if row is None else SqlSegment(partition_id, *row)


def drop_forgotten(connection: psycopg.Connection, partition_id: int) -> None:
    """Drop the segments that lie wholly below `oldest`; those in use are left for the next time."""
    connection.execute(
        "UPDATE journal.partition SET segment_start = NULL, segment_bytes = 0"
        " WHERE id = %s AND oldest = next AND segment_start IS NOT NULL",
        (partition_id,),
    )
    for (start,) in connection.execute(_FORGOTTEN, (partition_id,)).fetchall():
        _drop(connection, SqlSegment(partition_id, start))


_FORGOTTEN = """
    SELECT first_offset FROM (
        SELECT first_offset, oldest, lead(first_offset, 1,
                   CASE WHEN segment_start IS NULL THEN next END)
               OVER (ORDER BY first_offset) AS ends
        FROM journal.segment JOIN journal.partition ON id = partition_id
        WHERE partition_id = %s
    ) AS every WHERE ends <= oldest ORDER BY first_offset
"""


def _drop(connection: psycopg.Connection, segment: SqlSegment) -> None:
    """Drop one segment, unless somebody else does or a long query still reads it."""
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (_DROP_PATIENCE,))
            connection.execute(
                "DELETE FROM journal.segment WHERE partition_id = %s AND first_offset = %s",
                (segment.partition_id, segment.start),
            )
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(segment.table))
    except psycopg.errors.LockNotAvailable:
        logger.info("a segment is in use and will be dropped later", extra={"segment": segment})
