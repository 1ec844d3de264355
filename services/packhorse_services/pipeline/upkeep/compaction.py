"""Small files of finished days put together, by the tasks that read them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse_services.pipeline.measures.changes import opened
from packhorse_services.pipeline.measures.writing import MEASURES
from packhorse_services.pipeline.storage import arrow_files
from packhorse_services.pipeline.storage.delta import ARCHIVE
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import (
    FILE_BYTES,
    File,
    Files,
    rows_in,
    written_by_share,
)
from packhorse_services.pipeline.storage.table_files import Kept, files_of, tried_again
from packhorse_services.pipeline.upkeep.commits import replace

_MOST_ROWS = 10_000


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
    gone = [one for files in groups for one in files]
    if not gone:  # another run has done it
        return 0
    added = _rewritten(spark, location, table, [one for files in groups for one in shares(files)])
    replace(held, gone, added)
    return len(gone) - len(added)


def _partitions(held: DeltaTable) -> dict[tuple[str, date], list[Kept]]:
    found = defaultdict(list)
    for one in files_of(held):
        found[str(sorted(one.partition.items())), one.day].append(one)
    return found


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
