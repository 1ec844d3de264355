"""Which packages of a producer a subscription has processed, so that repeats are skipped (R27).

A publisher numbers its packages one by one, so within an epoch a sequence grows as the log does; it
skips no more numbers than packages were waiting when an append failed and they were numbered anew.
One that grows by more was given by no publisher: all later packages would be repeats (ADR 0036).
"""

from collections.abc import Mapping
from typing import Self

from psycopg import Connection

from packhorse.errors import Permanent
from packhorse.wire.messages import PackageEntry
from packhorse.wire.package_codec import is_producer

MOST_SKIPPED = 200_000
"""Numbers that a publisher may skip: twice as many packages as may wait for its journal."""

Known = tuple[int, int, int | None]
"""Epoch and sequence of a producer's last package, and where it was, unless that is not known."""


class ImpossibleSequence(Permanent):
    """No publisher gives such a number: a forged record, or a log that has lost others (R27)."""


class HighWater:
    """The highest (epoch, sequence) of each producer; packages without a producer are all new."""

    def __init__(self, marks: Mapping[str, Known]) -> None:
        self._marks = dict(marks)
        self._changed: dict[str, Known] = {}

    @classmethod
    def load(cls, connection: Connection, agent: str) -> Self:
        """Return what a subscription has stored."""
        rows = connection.execute(
            """
            SELECT producer, epoch, sequence, log_offset
            FROM bookkeeping.applied_sequence WHERE publisher_agent = %s
            """,
            (agent,),
        )
        return cls({producer: (*mark, offset) for producer, *mark, offset in rows})

    def fork(self) -> "HighWater":
        """Return a copy to try on: it replaces this one when the transaction has committed."""
        return HighWater(self._marks)

    def passes(self, entry: PackageEntry, offset: int) -> bool:
        """Note a package that is at `offset`, and return whether it is new rather than a repeat.

        A producer that can't be one is none: a forged header must not keep a subscription from
        passing. Raises `ImpossibleSequence`, with nothing noted.
        """
        if not entry.producer or not is_producer(entry.producer):
            return True
        known = self._marks.get(entry.producer)
        if known is not None:
            if (entry.epoch, entry.sequence) <= known[:2]:
                return False
            _check(entry, offset, known)
        noted = (entry.epoch, entry.sequence, offset)
        self._marks[entry.producer] = self._changed[entry.producer] = noted
        return True

    def release(self, producer: str) -> None:
        """Take any next number of a producer, for an operator has removed an impossible one."""
        epoch, sequence, _ = self._marks[producer]
        self._marks[producer] = self._changed[producer] = (epoch, sequence, None)

    def note(self, producer: str, mark: tuple[int, int], offset: int) -> None:
        """Note what is known of a producer from elsewhere; a higher mark that is known stays."""
        if mark > self._marks.get(producer, (-1, -1, None))[:2]:
            self._marks[producer] = self._changed[producer] = (*mark, offset)

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
            WHERE (stored.epoch, stored.sequence) <= (excluded.epoch, excluded.sequence)
            """,
            (agent, list(self._changed), list(epochs), list(sequences), list(offsets)),
        )


def _check(entry: PackageEntry, offset: int, known: Known) -> None:
    epoch, sequence, known_offset = known
    if entry.epoch != epoch or known_offset is None or offset < known_offset:
        return
    if entry.sequence - sequence > offset - known_offset + MOST_SKIPPED:
        raise ImpossibleSequence(
            f"sequence {entry.sequence} of producer {entry.producer} is no publisher's: {sequence} "
            f"was at offset {known_offset}, and all packages behind it would be taken for repeats; "
            f"find out who wrote offset {offset}, and remove it with packhorse clear queue"
        )
