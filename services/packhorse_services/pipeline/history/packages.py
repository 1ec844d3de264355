"""The packages that count, as tasks read them: by Arrow from the archive's own files.

Rows of whole bodies never pass through the JVM to be decoded (ADR 0020).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from packhorse.wire.package_codec import AGENT_HEADER, ENTRY_HEADER, decode_entry
from packhorse.wire.record import Undecodable
from packhorse_services.pipeline.archive.reading import headers_of
from packhorse_services.pipeline.storage import arrow_files, tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import Kept, files_of

SHARE_BYTES = 32 * 1024**2
"""What a share of a file has about, compressed."""

_ROWS = 256
_HEADERS = 2_000
"""Rows at a time where no bodies are read."""
_END = 2**63 - 1
_COLUMNS = ["offset", "journal_id", "headers", "value"]
_OFFSET = "offset"


class Package(NamedTuple):
    """An archived record of a package topic."""

    offset: int
    headers: dict[str, bytes]
    value: bytes


@dataclass(frozen=True, slots=True)
class BronzeVersion:
    """A version of bronze, and which of its topics has the packages."""

    number: int
    package_topic: str


@dataclass(frozen=True, slots=True)
class OffsetShare:
    """The `number`th of `count` shares of the row groups of a file, from 0."""

    path: str
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Packages:
    """Which packages of a journal count, and the files that they are in."""

    location: Location
    journal_id: str
    spans: Mapping[str, tuple[int, int]]
    """Of each publisher agent: above which offset, and up to which."""
    absent: frozenset[int]
    """Offsets of packages that do not count."""
    files: tuple[Kept, ...]
    subscriber: str = ""
    """Whose they are: those for named subscribers count if it is one of them (R35)."""

    def shares(self) -> list[OffsetShare]:
        """Return what tasks may read side by side; all of them are all packages."""
        first = min((after for after, _ in self.spans.values()), default=0) + 1
        last = max((up_to for _, up_to in self.spans.values()), default=-1)
        found = []
        for file in self.files:
            if file.overlaps(first, last):
                count = 1 + file.size // SHARE_BYTES
                path = _path(self.location, file.path)
                found += [OffsetShare(path, number, count) for number in range(count)]
        return found

    def read(self, share: OffsetShare) -> Iterator[Package]:
        """Yield the packages of a share; memory is bounded by a row group of the file."""
        with _opened(self.location, share.path) as file:
            each = file.num_row_groups / share.count
            first, end = int(share.number * each), int((share.number + 1) * each)
            if share.number + 1 == share.count:
                end = file.num_row_groups
            yield from self._counting(file, range(first, end))

    def at(self, offsets: Collection[int]) -> Iterator[Package]:
        """Yield the packages at some offsets, which are held in memory; in no order."""
        first, last = min(offsets), max(offsets)
        held = pa.array(sorted(offsets), pa.int64())
        for known in self.files:
            if known.overlaps(first, last):
                with _opened(self.location, _path(self.location, known.path)) as file:
                    yield from self._counting(file, _groups(file, first, last), held)

    def _counting(
        self, file: pq.ParquetFile, groups: Iterable[int], held: pa.Array | None = None
    ) -> Iterator[Package]:
        for batch in _rows(file, groups):
            wanted = pc.equal(batch.column("journal_id"), self.journal_id)
            if held is not None:
                wanted = pc.and_(wanted, pc.is_in(batch.column(_OFFSET), value_set=held))
            rows = batch.filter(wanted)
            columns = rows.column(_OFFSET).to_pylist(), headers_of(rows.column("headers"))
            for number, (offset, headers) in enumerate(zip(*columns, strict=False)):
                if self._counts(offset, headers):
                    yield Package(offset, headers, rows.column("value")[number].as_py())

    def _counts(self, offset: int, headers: Mapping[str, bytes]) -> bool:
        after, up_to = self.spans.get(agent_of(headers), (0, -1))
        counts = after < offset <= up_to and offset not in self.absent
        return counts and is_for(headers, self.subscriber)


def agent_of(headers: Mapping[str, bytes]) -> str:
    """Return the publisher agent that a package names; empty where it names none."""
    return headers.get(AGENT_HEADER, b"").decode(errors="replace")


TAG = b"\xf2\x01"
"""What the bytes of an entry with targets contain; those of few others do."""


def targets_of(headers: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the subscribers that a package is for by its `entry` header; none: all, or unreadable.

    Costs next to nothing for a package that is for all.
    """
    if TAG not in headers.get(ENTRY_HEADER, b""):
        return ()
    try:
        return decode_entry(headers).targets
    except Undecodable:
        return ()


def is_for(headers: Mapping[str, bytes], subscriber: str) -> bool:
    """Return whether a package is for this subscriber by its `entry` header."""
    targets = targets_of(headers)
    return not targets or subscriber in targets


def package_files(location: Location, version: BronzeVersion) -> tuple[Kept, ...]:
    """Return the files of the package topic at a version of bronze."""
    files = files_of(stored(location, tables.BRONZE, version.number))
    return tuple(one for one in files if one.partition["topic"] == version.package_topic)


def column_batches(
    location: Location, files: Iterable[Kept], columns: list[str], first: int = 0, last: int = _END
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the rows that may have offsets from `first` to `last`, in no order."""
    for known in files:
        if known.overlaps(first, last):
            yield from batches_of(location, known.path, columns, first, last)


def batches_of(
    location: Location, file: str, columns: list[str], first: int = 0, last: int = _END
) -> Iterator[pa.RecordBatch]:
    """Yield the same of one file, by its path in bronze."""
    with _opened(location, _path(location, file)) as opened:
        groups = _groups(opened, first, last)
        yield from opened.iter_batches(_HEADERS, groups, columns, use_threads=False)


def _path(location: Location, file: str) -> str:
    return arrow_files.path(location, f"{tables.BRONZE}/{file}")


@contextmanager
def _opened(location: Location, path: str) -> Iterator[pq.ParquetFile]:
    """Lend a file, opened so that no more of it is held than is being read."""
    with arrow_files.filesystem(location).open_input_file(path) as raw:
        yield pq.ParquetFile(raw)


def _rows(file: pq.ParquetFile, groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield rows group by group: a batch over several would hold all of their bodies."""
    for group in groups:
        yield from file.iter_batches(_ROWS, [group], _COLUMNS, use_threads=False)


def _groups(file: pq.ParquetFile, first: int, last: int) -> list[int]:
    at = file.schema.names.index(_OFFSET)
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    bounds: list[Any] = [group.column(at).statistics for group in groups]
    return [
        number
        for number, known in enumerate(bounds)
        if not (known and known.has_min_max) or (known.min <= last and first <= known.max)
    ]
