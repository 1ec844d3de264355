"""A cursor over partitions of a topic: polling is the truth, hints only save time."""

import threading
import time
from collections.abc import Mapping, Sequence

from psycopg import Connection

from packhorse.messaging.api import (
    JournalUnavailable,
    OffsetOutOfRange,
    Position,
    Reader,
    Record,
)
from packhorse.messaging.sql.catalogue import (
    SqlPartition,
    SqlTopic,
    find_partition,
    find_partitions,
)
from packhorse.messaging.sql.hints import LOOK_S, JournalListener
from packhorse.messaging.sql.records import Budget, PartitionRecords, offset_of
from packhorse.messaging.sql.session import Sessions


class SqlReader(Reader):
    """A `Reader` that asks the database when there is news, and else every few seconds."""

    def __init__(
        self,
        sessions: Sessions,
        hints: JournalListener,
        topic: SqlTopic,
        positions: Mapping[int, int],
        values: bool,
    ) -> None:
        self._sessions, self._hints, self._topic = sessions, hints, topic
        self._quiet: tuple[int, float] | None = None
        """The ticket with which the end was reached, and until when that is believed."""
        self._at_end = False
        self._woken = threading.Event()
        self._positions = dict(positions)
        self._records = {number: PartitionRecords(topic, number, values) for number in positions}

    def poll(
        self, timeout: float, *, max_records: int = 500, max_bytes: int = 8 * 1024 * 1024
    ) -> Sequence[Record]:
        """Return the next records; while the database is away, wait a moment and say so.

        `max_bytes` counts headers too, and thereby bounds a poll without values.
        """
        deadline = time.monotonic() + timeout
        while True:
            ticket = self._hints.ticket(self._topic.id)
            records: list[Record] = []
            if timeout <= 0 or not self._is_quiet(ticket):
                records = self._read(Budget(max_records, max_bytes), deadline)
                self._quiet = (ticket, time.monotonic() + LOOK_S) if self._at_end else None
            left = deadline - time.monotonic()
            if records or left <= 0 or self._woken.is_set():
                self._woken.clear()
                return records
            self._hints.wait(self._topic.id, ticket, min(left, LOOK_S), self._woken)

    def _is_quiet(self, ticket: int) -> bool:
        """Return whether a look now would find no more than the last one, as far as hints say."""
        known, until = self._quiet or (ticket, 0.0)
        return known == ticket and time.monotonic() < until and self._hints.listening

    def _read(self, budget: Budget, deadline: float) -> list[Record]:
        pause_s = 0.0
        try:
            with self._sessions.lend() as session:
                try:
                    with session.use() as connection:
                        return self._take(connection, budget)
                finally:
                    pause_s = session.pause_s
        except JournalUnavailable:
            # Who polls in a loop must not hammer a database that is away.
            time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
            raise

    def _take(self, connection: Connection, budget: Budget) -> list[Record]:
        records = self._look(connection, budget) if len(self._positions) == 1 else None
        return self._search(connection, budget) if records is None else records

    def _look(self, connection: Connection, budget: Budget) -> list[Record] | None:
        """Look with one statement into the segment that is known to be open, if that is enough."""
        [(number, position)] = self._positions.items()
        found = self._records[number].look(connection, position, budget)
        if found is None:
            return None
        partition, records = found
        self._check({number: partition})
        if records:
            self._positions[number] = position = records[-1].offset + 1
        self._at_end = position >= partition.bounds.next
        return records if records or self._at_end else None

    def _search(self, connection: Connection, budget: Budget) -> list[Record]:
        partitions = find_partitions(connection, self._topic)
        self._check(partitions)
        records: list[Record] = []
        for number, position in list(self._positions.items()):
            taken = self._records[number].read(connection, position, partitions[number], budget)
            if taken:
                # Back in as the last, so that the next poll begins with another partition.
                del self._positions[number]
                self._positions[number] = taken[-1].offset + 1
                records += taken
            elif budget.untouched and position < partitions[number].bounds.next:
                self._refuse(connection, number, position)
        self._at_end = all(
            position >= partitions[number].bounds.next
            for number, position in self._positions.items()
        )
        return records

    def _check(self, partitions: dict[int, SqlPartition]) -> None:
        for number, position in self._positions.items():
            bounds = partitions[number].bounds
            if not bounds.oldest <= position <= bounds.next:
                raise OffsetOutOfRange(self._topic.name, number, position, bounds)

    def _refuse(self, connection: Connection, number: int, position: int) -> None:
        """Say that a record is gone: retention passed just now, or somebody damaged the log."""
        bounds = find_partition(connection, self._topic, number).bounds
        raise OffsetOutOfRange(self._topic.name, number, position, bounds)

    def wake(self) -> None:
        """Let a poll return without waiting."""
        self._woken.set()
        self._hints.wake()

    def seek(self, position: Position, partition: int = 0) -> None:
        """Continue at `position`; an offset that is out of range is reported at the next poll."""
        self._quiet = None
        with self._sessions.use() as connection:
            state = find_partition(connection, self._topic, partition)
            self._positions[partition] = offset_of(connection, position, state)

    def position(self, partition: int = 0) -> int:
        """Return the offset of the next record."""
        return self._positions[partition]

    def close(self) -> None:
        """Do nothing: the connection is the journal's."""
