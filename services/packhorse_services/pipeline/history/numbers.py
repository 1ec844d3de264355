"""How producers have numbered packages: which repeat an earlier one, and what came highest (R27).

From the headers alone, in this process: 12 µs a package, and of a run of files 32 bytes a package.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from packhorse.snapshots.snapshot import AppliedSequence
from packhorse.wire.package_codec import decode_entry, is_producer
from packhorse.wire.record import Undecodable
from packhorse_services.pipeline.history.headers import headers_between
from packhorse_services.pipeline.history.packages import (
    BronzeVersion,
    agent_of,
    package_files,
)
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import Kept

Producer = tuple[str, str]
"""Publisher agent and producer."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the numbers of some packages come to."""

    repeats: frozenset[int]
    """Offsets of those whose number is not above all that their producer gave before: few."""
    highest: tuple[AppliedSequence, ...]
    """The highest of each producer, those that were applied before among them."""


def numbers_of(
    location: Location,
    version: BronzeVersion,
    journal_id: str,
    spans: Mapping[str, tuple[int, int]],
    applied: Iterable[AppliedSequence] = (),
) -> Numbers:
    """Read the numbers of packages: of each agent above an offset and up to another (`spans`).

    A package without a number is always new. `applied` are the highest ones at earlier offsets.
    Raises `OSError` for a file that can't be read.
    """
    first = min((after for after, _ in spans.values()), default=0) + 1
    last = max((up_to for _, up_to in spans.values()), default=-1)
    found = _Highest(sorted(applied, key=lambda one: one.log_offset))
    for files in _runs(
        one for one in package_files(location, version) if one.overlaps(first, last)
    ):
        run = _Run()
        for offset, headers in headers_between(location, files, journal_id, first, last):
            after, up_to = spans.get(agent_of(headers), (0, -1))
            if after < offset <= up_to:
                run.add(offset, headers)
        found.take(run)
    return found.numbers()


def _runs(files: Iterable[Kept]) -> Iterator[list[Kept]]:
    """Yield files together whose offsets overlap, one such run behind the other."""
    run: list[Kept] = []
    end: int | None = -1
    for file in sorted(files, key=lambda one: one.first):
        if run and end is not None and file.first > end:
            yield run
            run, end = [], -1
        run.append(file)
        end = None if end is None or file.last is None else max(end, file.last)
    if run:
        yield run


class _Run:
    """The numbers of a run of files, in any order."""

    def __init__(self) -> None:
        self.producers: dict[Producer, int] = {}
        self._columns = tuple(array("q") for _ in range(4))

    def add(self, offset: int, headers: Mapping[str, bytes]) -> None:
        try:
            entry = decode_entry(headers)
        except Undecodable:
            return  # whoever decodes the package reports it
        if entry.producer and is_producer(entry.producer):
            key = entry.publisher_agent, entry.producer
            number = self.producers.setdefault(key, len(self.producers))
            row = (offset, number, entry.epoch, entry.sequence)
            for column, value in zip(self._columns, row, strict=True):
                column.append(value)

    def in_order(self) -> Iterator[tuple[int, Producer, tuple[int, int]]]:
        """Yield offset, producer and number of each package by its offset."""
        offsets, numbers, epochs, sequences = self._columns
        producers = list(self.producers)
        for at in sorted(range(len(offsets)), key=offsets.__getitem__):
            yield offsets[at], producers[numbers[at]], (epochs[at], sequences[at])


@dataclass(slots=True)
class _Highest:
    """The highest number of each producer so far, and the packages that were not above it."""

    waiting: Sequence[AppliedSequence]
    """Applied at offsets that are not reached yet, in order."""
    known: dict[Producer, tuple[int, int, int]] = field(default_factory=dict)
    """Epoch, sequence and offset."""
    repeats: set[int] = field(default_factory=set)
    _met: int = 0

    def take(self, run: _Run) -> None:
        for offset, producer, number in run.in_order():
            self._meet(offset)
            if not self._raise(producer, number, offset):
                self.repeats.add(offset)

    def numbers(self) -> Numbers:
        self._meet(None)
        highest = (AppliedSequence(*key, *self.known[key]) for key in sorted(self.known))
        return Numbers(frozenset(self.repeats), tuple(highest))

    def _meet(self, offset: int | None) -> None:
        """Take what was applied below an offset; all of it when there is none."""
        while self._met < len(self.waiting):
            one = self.waiting[self._met]
            if offset is not None and one.log_offset >= offset:
                return
            number = one.epoch, one.sequence
            self._raise((one.publisher_agent, one.producer), number, one.log_offset)
            self._met += 1

    def _raise(self, producer: Producer, number: tuple[int, int], offset: int) -> bool:
        """Take a number, and return whether it is above the one that is known."""
        held = self.known.get(producer)
        if held is not None and number <= held[:2]:
            return False
        self.known[producer] = (*number, offset)
        return True
