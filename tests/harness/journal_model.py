"""The journal as lists: the model that Hypothesis compares every backend with."""

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from packhorse.messaging.api import (
    Appended,
    Bounds,
    Journal,
    LogEnd,
    OffsetOutOfRange,
    Outgoing,
    Position,
    Reader,
    Record,
    partition_for,
)
from tests.harness.journals import DEADLINE_S, create

PARTITIONS = 2
_values = st.binary(max_size=40)
_headers = st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)
_keys = st.none() | st.text(max_size=3)
_partitions = st.integers(0, PARTITIONS - 1)
_fractions = st.floats(0, 1)


class JournalMachine(RuleBasedStateMachine):
    """Appends, truncates and reads one topic of a journal beside lists that do the same."""

    def open(self) -> Journal:
        """Return the journal to compare; each backend's test says how."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.journal = self.open()
        self.topic = create(self.journal, partitions=PARTITIONS)
        self.model: list[list[Outgoing]] = [[] for _ in range(PARTITIONS)]
        self.oldest = [0] * PARTITIONS
        self.reader: Reader = self.journal.reader(self.topic, LogEnd.OLDEST)
        self.positions = [0] * PARTITIONS

    def teardown(self) -> None:
        self.reader.close()
        self.journal.close()

    @rule(value=_values, headers=_headers, key=_keys, times=st.integers(1, 4))
    def append(self, value: bytes, headers: dict[str, bytes], key: str | None, times: int) -> None:
        record = Outgoing(value, headers, key)
        futures = [self.journal.append(self.topic, record) for _ in range(times)]
        log = self.model[partition_for(key, PARTITIONS)]
        for future in futures:
            expected = Appended(partition_for(key, PARTITIONS), len(log))
            assert future.result(DEADLINE_S) == expected
            log.append(record)

    @rule(number=_partitions, fraction=_fractions)
    def truncate(self, number: int, fraction: float) -> None:
        before = round(fraction * len(self.model[number]))
        self.journal.truncate(self.topic, before, number)
        self.oldest[number] = max(self.oldest[number], before)

    @rule(number=_partitions, fraction=_fractions)
    def seek(self, number: int, fraction: float) -> None:
        offset = round(fraction * (len(self.model[number]) + 1))
        self._seek(number, offset, offset)

    @rule(number=_partitions, edge=st.sampled_from(LogEnd))
    def seek_edge(self, number: int, edge: LogEnd) -> None:
        ends = {LogEnd.OLDEST: self.oldest[number], LogEnd.NEXT: len(self.model[number])}
        self._seek(number, edge, ends[edge])

    def _seek(self, number: int, position: Position, offset: int) -> None:
        self.reader.seek(position, number)
        self.positions[number] = offset

    @rule(count=st.integers(1, 6))
    def poll(self, count: int) -> None:
        lost = self._out_of_range()
        if lost:
            with pytest.raises(OffsetOutOfRange) as reported:
                self.reader.poll(0.0, max_records=count)
            assert reported.value.wanted == lost[reported.value.partition]
        else:
            self._compare(self.reader.poll(0.0, max_records=count), count)

    def _compare(self, records: Sequence[Record], count: int) -> None:
        left = sum(len(log) - at for log, at in zip(self.model, self.positions, strict=True))
        assert len(records) == min(count, left)
        for record in records:
            expected = self.model[record.partition][self.positions[record.partition]]
            assert record.offset == self.positions[record.partition]
            assert Outgoing(record.value, dict(record.headers), record.key) == expected
            self.positions[record.partition] += 1

    def _out_of_range(self) -> dict[int, int]:
        return {
            number: position
            for number, position in enumerate(self.positions)
            if not self.oldest[number] <= position <= len(self.model[number])
        }

    @rule(number=_partitions, fraction=st.floats(-0.1, 1.1))
    def read_at(self, number: int, fraction: float) -> None:
        log = self.model[number]
        offset = round(fraction * len(log))
        record = self.journal.read_at(self.topic, offset, number)
        if self.oldest[number] <= offset < len(log):
            assert record is not None
            assert Outgoing(record.value, dict(record.headers), record.key) == log[offset]
        else:
            assert record is None

    @invariant()
    def bounds_agree(self) -> None:
        for number, log in enumerate(self.model):
            expected = Bounds(self.oldest[number], len(log))
            assert self.journal.bounds(self.topic, number) == expected
