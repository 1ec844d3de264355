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
        self._changed: dict[str, tuple[int, int]] = {}

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

    def passes(self, entry: PackageEntry) -> bool:
        """Note a package, and tell whether it is new rather than a repeat.

        A producer that can't be one is none: a forged header must not keep a lane from passing.
        """
        if not entry.producer or not is_producer(entry.producer):
            return True
        mark = (entry.epoch, entry.sequence)
        known = self._marks.get(entry.producer)
        if known is not None and mark <= known:
            return False
        self._marks[entry.producer] = self._changed[entry.producer] = mark
        return True

    def store(self, connection: Connection, agent: str) -> None:
        """Write what was noted since the fork, in the caller's transaction."""
        if not self._changed:
            return
        connection.execute(
            """
            INSERT INTO bookkeeping.applied_sequence (publisher_agent, producer, epoch, sequence)
            SELECT %s, producer, epoch, sequence
            FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
                AS noted (producer, epoch, sequence)
            ON CONFLICT (publisher_agent, producer) DO UPDATE
            SET epoch = excluded.epoch, sequence = excluded.sequence
            """,
            (
                agent,
                list(self._changed),
                [epoch for epoch, _ in self._changed.values()],
                [sequence for _, sequence in self._changed.values()],
            ),
        )
