"""Records out of segments: the next ones of a partition, one at an offset, the first of a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Connection, errors, sql
from psycopg.rows import TupleRow

from packhorse.messaging.api import Bounds, LogEnd, Position, Record, Since, damaged
from packhorse.messaging.sql.catalogue import SqlPartition, SqlTopic
from packhorse.messaging.sql.headers import unpack_headers
from packhorse.messaging.sql.segments import SqlSegment, find_segment


@dataclass(slots=True)
class Budget:
    """What one poll may still fetch. The first record of a poll comes whatever its size."""

    records: int
    bytes: int
    untouched: bool = True

    def spend(self, records: int, size: int) -> None:
        """Count records that were fetched."""
        self.records -= records
        self.bytes -= size
        self.untouched = self.untouched and records == 0


class PartitionRecords:
    """The records of one partition, read forwards; remembers the segment that it is in."""

    def __init__(self, topic: SqlTopic, number: int, values: bool) -> None:
        self._topic, self._number, self._values = topic, number, values
        self._segment: SqlSegment | None = None
        self._open: SqlSegment | None = None
        """The segment that records were appended to when it was last looked up."""

    def look(
        self, connection: Connection, position: int, budget: Budget
    ) -> tuple[SqlPartition, list[Record]] | None:
        """Return the partition, and its records from `position` on in the segment that is open.

        One statement does it. None where the segment is not known, or can't be read at once.
        """
        segment, self._open = self._open, None
        if segment is None:
            return None
        form = _LOOK_WITH_BODIES if self._values else _LOOK_WITHOUT_BODIES
        query = sql.SQL(form).format(segment.table)
        wanted = (*_wanted(position, budget), segment.partition_id)
        try:
            rows = connection.cursor(binary=True).execute(query, wanted).fetchall()
        except (errors.UndefinedTable, *_DAMAGE):
            return None
        if not rows:
            return None
        oldest, next_, start = rows[0][:3]
        if start == segment.start:
            self._open = segment
        partition = SqlPartition(segment.partition_id, Bounds(oldest, next_), start)
        found = [row[3:] for row in rows if row[3] is not None]
        return partition, self._records_of(found, position, budget)

    def read(
        self, connection: Connection, position: int, partition: SqlPartition, budget: Budget
    ) -> list[Record]:
        """Return the records from `position` on, without a hole; none if that one is gone."""
        records: list[Record] = []
        while position < partition.bounds.next and budget.records > 0:
            segment = self._segment_of(connection, position, partition)
            found = self._fetch(connection, segment, position, budget) if segment else []
            records += found
            position += len(found)
            if segment is None or position != segment.end:
                break
        return records

    def _segment_of(
        self, connection: Connection, position: int, partition: SqlPartition
    ) -> SqlSegment | None:
        if partition.open_start is not None and position >= partition.open_start:
            self._open = SqlSegment(partition.id, partition.open_start)
            return self._open
        known = self._segment
        if known is None or not known.start <= position < (known.end or 0):
            self._segment = find_segment(connection, partition.id, position)
        return self._segment

    def _fetch(
        self, connection: Connection, segment: SqlSegment, position: int, budget: Budget
    ) -> list[Record]:
        query = sql.SQL(_WITH_BODIES if self._values else _WITHOUT_BODIES).format(segment.table)
        wanted = _wanted(position, budget)
        try:
            rows = connection.cursor(binary=True).execute(query, wanted).fetchall()
        except errors.UndefinedTable:  # dropped since the segment was looked up
            return []
        except _DAMAGE as error:
            budget.spend(budget.records, 0)  # one by one, until the damage is passed
            return [self._one(connection, segment, position, error)]
        return self._records_of(rows, position, budget)

    def _records_of(self, rows: Sequence[TupleRow], position: int, budget: Budget) -> list[Record]:
        """Return the records of rows up to the first hole, and count them."""
        records = []
        for expected, row in enumerate(rows, position):
            if row[0] != expected:
                break
            records.append(_record(self._topic.name, self._number, row))
        budget.spend(len(records), sum(row[5] for row in rows[: len(records)]))
        return records

    def _one(
        self, connection: Connection, segment: SqlSegment, position: int, damage: Exception
    ) -> Record:
        """Return the record at `position`, or what says that it can't be read."""
        body = "body" if self._values else "''::bytea"
        query = sql.SQL(_ONE.format(body=body)).format(segment.table)
        try:
            row = connection.cursor(binary=True).execute(query, (position,)).fetchone()
        except _DAMAGE as error:
            row, damage = None, error
        if row is not None:
            return _record(self._topic.name, self._number, row)
        return damaged(self._topic.name, self._number, position, str(damage))


_DAMAGE = (errors.DataCorrupted, errors.IndexCorrupted)
"""What Postgres says of pages and values that fail their checks."""


# Sizes come first, so that no body is fetched only to be left out; the server knows the size of
# a body without reading it.
_NEXT = """
    SELECT "offset", time_ms, key, headers, {body}, size FROM (
        SELECT *, sum(size) OVER (ORDER BY "offset") AS total FROM (
            SELECT *, {size} AS size FROM {{}} WHERE "offset" >= %s ORDER BY "offset" LIMIT %s
        ) AS sized
    ) AS summed WHERE total <= %s OR "offset" = %s ORDER BY "offset"
"""
# Not sorted once more: one row is joined, and what came in another order would count as a hole.
_LOOK = """
    SELECT oldest, next, segment_start, found.* FROM journal.partition
    LEFT JOIN LATERAL ({next}) AS found ON true WHERE id = %s
"""
_ONE = 'SELECT "offset", time_ms, key, headers, {body}, 0 FROM {{}} WHERE "offset" = %s'
_WITH_BODIES = _NEXT.format(body="body", size="octet_length(headers) + octet_length(body)")
_WITHOUT_BODIES = _NEXT.format(body="''::bytea", size="octet_length(headers)")
_LOOK_WITH_BODIES = _LOOK.format(next=_WITH_BODIES)
_LOOK_WITHOUT_BODIES = _LOOK.format(next=_WITHOUT_BODIES)


def _wanted(position: int, budget: Budget) -> tuple[int | None, ...]:
    first = position if budget.untouched else None
    return position, budget.records, budget.bytes, first


def read_at(
    connection: Connection, topic: SqlTopic, number: int, partition: SqlPartition, offset: int
) -> Record | None:
    """Return the record at `offset` with its value, or None."""
    if not partition.bounds.oldest <= offset < partition.bounds.next:
        return None
    found = PartitionRecords(topic, number, values=True).read(
        connection, offset, partition, Budget(1, 0)
    )
    return found[0] if found else None


def offset_of(connection: Connection, position: Position, partition: SqlPartition) -> int:
    """Return the offset that a position stands for now."""
    match position:
        case LogEnd.OLDEST:
            return partition.bounds.oldest
        case LogEnd.NEXT:
            return partition.bounds.next
        case Since(time_ms):
            return offset_at(connection, partition, time_ms)
    return position


def offset_at(connection: Connection, partition: SqlPartition, time_ms: int) -> int:
    """Return the first offset that is not older than `time_ms`, else the next one.

    Times do not fall from one record to the next, so the first record of a segment says which
    one to search.
    """
    row = connection.execute(
        "SELECT max(first_offset) FROM journal.segment WHERE partition_id = %s AND first_ms < %s",
        (partition.id, time_ms),
    ).fetchone()
    start = row[0] if row else None
    if start is None:
        return partition.bounds.oldest
    segment = find_segment(connection, partition.id, start)
    if segment is None:
        return partition.bounds.oldest
    query = sql.SQL('SELECT min("offset") FROM {} WHERE time_ms >= %s').format(segment.table)
    try:
        row = connection.execute(query, (time_ms,)).fetchone()
    except errors.UndefinedTable:
        return partition.bounds.oldest
    first = row[0] if row else None
    if first is None:
        first = segment.end if segment.end is not None else partition.bounds.next
    return max(int(first), partition.bounds.oldest)


def _record(topic: str, number: int, row: TupleRow) -> Record:
    offset, time_ms, key, headers, body, _ = row
    try:
        name = None if key is None else str(key, "utf-8")
        found = unpack_headers(headers)
    except (ValueError, TypeError, AttributeError) as error:  # a value that nobody has packed
        return damaged(topic, number, offset, f"key or headers are none ({error})")
    return Record(topic, number, offset, time_ms, name, found, body)
