"""Which packages of a producer a lane has processed already, so that a repeat is none (R27)."""

from collections.abc import Mapping
from typing import Self

from psycopg import Connection

from packhorse.wire.messages import PackageEntry
from packhorse.wire.package_codec import is_producer


class HighWater:
    """The highest (epoch, sequence) of each producer; packages without a producer are all new."""

    def __init__(self, marks: Mapping[str, tuple[int, int]]) -> None:
        self._marks = dict(marks)
        self._changed: dict[str, tuple[int, int, int]] = {}

    @classmethod
    def load(cls, connection: Connection, agent: str) -> Self:
        """Return what a lane has stored."""
        rows = connection.execute(
            """
            SELECT producer, epoch, sequence
            FROM bookkeeping.applied_sequence WHERE publisher_agent = %s
            """,
            (agent,),
        )
        return cls({producer: (epoch, sequence) for producer, epoch, sequence in rows})

    def fork(self) -> "HighWater":
        """Return a copy to try on: it replaces this one when the transaction has committed."""
        return HighWater(self._marks)

    def passes(self, entry: PackageEntry, offset: int) -> bool:
        """Note a package that is at `offset`, and tell whether it is new rather than a repeat.

        A producer that can't be one is none: a forged header must not keep a lane from passing.
        """
        if not entry.producer or not is_producer(entry.producer):
            return True
        mark = (entry.epoch, entry.sequence)
        known = self._marks.get(entry.producer)
        if known is not None and mark <= known:
            return False
        self._marks[entry.producer] = mark
        self._changed[entry.producer] = (*mark, offset)
        return True

    def note(self, producer: str, mark: tuple[int, int], offset: int) -> None:
        """Note what is known of a producer from elsewhere; a higher mark that is known stays."""
        if mark > self._marks.get(producer, (-1, -1)):
            self._marks[producer] = mark
            self._changed[producer] = (*mark, offset)

    def store(self, connection: Connection, agent: str) -> None:
        """Write what was noted since the fork, in the caller's transaction.

        A higher mark that is stored already stays: the log may have forgotten where it is from.
        """
        if not self._changed:
            return
        epochs, sequences, offsets = zip(*self._changed.values(), strict=True)
        connection.execute(
            """
            INSERT INTO bookkeeping.applied_sequence AS stored
                (publisher_agent, producer, epoch, sequence, log_offset)
            SELECT %s, producer, epoch, sequence, log_offset
            FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
                AS noted (producer, epoch, sequence, log_offset)
            ON CONFLICT (publisher_agent, producer) DO UPDATE
            SET epoch = excluded.epoch, sequence = excluded.sequence,
                log_offset = excluded.log_offset
            WHERE (stored.epoch, stored.sequence) < (excluded.epoch, excluded.sequence)
            """,
            (agent, list(self._changed), list(epochs), list(sequences), list(offsets)),
        )
