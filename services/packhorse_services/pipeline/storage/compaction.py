"""Small files of a day put together, by the tasks that read them.

Those of finished days by the upkeep, all of a day; those of an open day by the archive that writes
them, the smallest ones (`OpenDays`).
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse_services.pipeline.errors import TablesUnusable
from packhorse_services.pipeline.storage import arrow_files
from packhorse_services.pipeline.storage.delta import ARCHIVE, MEASURES, opened
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import (
    FILE_BYTES,
    GROUP_BYTES,
    File,
    Files,
    written_by_share,
)
from packhorse_services.pipeline.storage.table_files import (
    Kept,
    files_of,
    replace,
    tried_again,
)

logger = logging.getLogger(__name__)

_MOST_ROWS = 10_000
_MANY_FILES = 10

_KNOWN = 1_000
"""Days whose files are counted: records of a foreign topic may name any number of them."""


def compact(spark: SparkSession, location: Location, table: str, before: date) -> int:
    """Put the small files of each day before `before` together; returns how many became fewer.

    A commit a day. A task holds some row groups' worth of rows, however large the rows are.
    """
    held = opened(location, table)
    if held is None:
        return 0
    days = sorted({day for (_, day), files in _partitions(held).items() if _worth(files)})
    return sum(_compact(spark, location, table, day) for day in days if day < before)


@tried_again
def _compact(spark: SparkSession, location: Location, table: str, day: date) -> int:
    held = opened(location, table)
    if held is None:
        return 0
    groups = [
        files for (_, its), files in _partitions(held).items() if its == day and _worth(files)
    ]
    return _merge(spark, location, table, held, groups)  # none when another run has done it


@tried_again
def compact_dayless(spark: SparkSession, location: Location, table: str) -> None:
    """Put the files of a small table without days together, where they are many."""
    held = opened(location, table)
    if held is not None and len(files := files_of(held)) >= _MANY_FILES:
        _merge(spark, location, table, held, [files])


def _merge(
    spark: SparkSession,
    location: Location,
    table: str,
    held: DeltaTable,
    groups: Sequence[Sequence[Kept]],
) -> int:
    """Put each group of files together in one commit; returns how many files became fewer."""
    gone = [one for files in groups for one in files]
    if not gone:
        return 0
    added = _rewritten(spark, location, table, [one for files in groups for one in shares(files)])
    replace(location, table, held, gone, added)
    return len(gone) - len(added)


def _partitions(held: DeltaTable) -> dict[tuple[str, date], list[Kept]]:
    found = defaultdict(list)
    for one in files_of(held):
        found[_partition(one), one.day].append(one)
    return found


def _partition(file: Kept) -> str:
    return str(sorted(file.partition.items()))


def _worth(files: Sequence[Kept]) -> bool:
    """Return whether files become fewer; never of what `shares` has made."""
    return len(files) > 2 * (sum(one.size for one in files) // FILE_BYTES) + 1


def shares(files: Iterable[Kept]) -> list[list[Kept]]:
    """Share the files of a partition among tasks, neighbours by offset together.

    Each share but the last makes at least one file that is large enough.
    """
    found: list[list[Kept]] = [[]]
    size = 0
    for one in sorted(files, key=lambda each: each.first):
        if size >= FILE_BYTES:
            found.append([])
            size = 0
        found[-1].append(one)
        size += one.size
    return found


def _rewritten(
    spark: SparkSession, location: Location, table: str, work: Sequence[Sequence[Kept]]
) -> list[File]:
    shape = to_arrow_schema({**ARCHIVE, **MEASURES}[table], timezone="UTC")

    def run(files: Files, share: Sequence[Kept]) -> None:
        filesystem = arrow_files.filesystem(location)
        for one in share:
            place = arrow_files.path(location, f"{table}/{one.path}")
            with filesystem.open_input_file(place) as raw:
                for rows in rows_in(raw, one.partition, shape, _MOST_ROWS):
                    files.add(table, rows)

    return written_by_share(spark, location, work, run)


def rows_in(
    raw: pa.NativeFile,
    partition: Mapping[str, object],
    shape: pa.Schema,
    most: int,
    most_bytes: int = GROUP_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows with the columns of `shape`, `partition` has those that it leaves out.

    Up to `most` at a time, and no more than about `most_bytes` of them.
    """
    file = pq.ParquetFile(raw, coerce_int96_timestamp_unit="us")
    reported = {name: pa.scalar(value) for name, value in partition.items()}
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        fit = most_bytes * group.num_rows // max(1, group.total_byte_size)
        size = max(1, min(most, fit))
        for part in file.iter_batches(size, row_groups=[number], use_threads=False):
            arrays = [
                pa.repeat(reported[one.name].cast(one.type), part.num_rows)
                if one.name in reported
                else part.column(one.name).cast(one.type)
                for one in shape
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=shape)


class OpenDays:
    """Keeps the small files of each day few that one run writes to.

    Where a day has more than `most` in a table, the smallest of them become one for each
    partition. Those of half the wanted size are not small, so that a row is rewritten a few times
    and not with each batch. What fails is logged, and tried again with a later batch.
    """

    def __init__(self, spark: SparkSession, location: Location, most: int) -> None:
        self._spark, self._location, self._most = spark, location, most
        self._counts: dict[tuple[str, date], int] = {}
        """Small files of the days that the run has written to."""

    def added(self, files: Iterable[File]) -> None:
        """Take note of files that their tables have now, and merge some where there are many."""
        if len(self._counts) > _KNOWN:
            self._counts.clear()
        new = Counter((one.table, one.day) for one in files if _small(one))
        for (table, day), count in new.items():
            try:
                self._add(table, day, count)
            except (DeltaError, TablesUnusable, PySparkException, Py4JError, OSError) as error:
                self._counts.pop((table, day), None)  # it is counted anew
                told = {"table": table, "day": str(day), "why": str(error)[:300]}
                logger.warning("small files of the open day were not merged", extra=told)

    def _add(self, table: str, day: date, count: int) -> None:
        before = self._counts.get((table, day))
        now = self._count(table, day) if before is None else before + count
        self._counts[table, day] = now if now <= self._most else self._merged(table, day)

    def _count(self, table: str, day: date) -> int:
        held = opened(self._location, table)
        return 0 if held is None else len(_smallest(held, day))

    @tried_again
    def _merged(self, table: str, day: date) -> int:
        """Merge the smallest files of a day; returns how many small ones it has then."""
        held = opened(self._location, table)
        if held is None:
            return 0
        there = _smallest(held, day)
        groups = defaultdict(list)
        for one in there[: self._most]:
            groups[_partition(one)].append(one)
        several = [files for files in groups.values() if len(files) > 1]
        return len(there) - _merge(self._spark, self._location, table, held, several)


def _small(file: File | Kept) -> bool:
    return file.size < FILE_BYTES // 2


def _smallest(held: DeltaTable, day: date) -> list[Kept]:
    found = (one for one in files_of(held) if one.day == day and _small(one))
    return sorted(found, key=lambda one: one.size)
