"""Which files a table has, and the commits that take some of them out.

They are made by delta-rs, like those of the archive: on S3 a commit is then a conditional put, and
two writers never take the same version. Spark's own commits there look first and write afterwards,
and have been seen to overwrite what came in between. The OPTIMIZE of delta-rs can't carry a fence:
of two at once each leaves a copy of all rows.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import stamina
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from packhorse_services.pipeline.storage.delta import commit
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File

tried_again = stamina.retry(
    on=CommitFailedError, attempts=6, wait_initial=0.5, wait_max=20.0, timeout=None
)
"""Of what begins with reading a table anew: another writer may have come first."""

_FENCE = "packhorse-upkeep"
"""Delta-rs lets two take out the same file when one has only moved its rows."""


def fence(held: DeltaTable) -> Transaction:
    """Return what a commit must carry that takes files out of a table, as it was when read.

    It then fails with `CommitFailedError` when another one with a fence has come in between.
    """
    return Transaction(_FENCE, (held.transaction_version(_FENCE) or 0) + 1)


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of a table, as its log describes it."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, str]
    first: int
    """The least offset in it; 0 when the log has none."""
    last: int | None = None
    """The greatest offset in it, when the log has it."""

    @property
    def day(self) -> date:
        """The day of its rows."""
        return date.fromisoformat(self.partition["day"])

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether offsets from `first` to `last` may be in it; unknown bounds may be any."""
        return self.first <= last and (self.last is None or first <= self.last)


def files_of(table: DeltaTable) -> list[Kept]:
    """Return the files of a table at its version, in no order."""
    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [_kept(row) for row in found]


def taken_out(gone: Iterable[Kept], *, rows_go: bool) -> list[RemoveAction]:
    """Return what takes files out of their table in a commit, as of now.

    Without `rows_go` readers of changes see nothing of it: the rows are in other files.
    """
    now_ms = int(time.time() * 1000)
    return [RemoveAction(one.path, rows_go, now_ms, one.size, dict(one.partition)) for one in gone]


def _kept(row: Mapping[str, Any]) -> Kept:
    prefix = "partition."
    partition = {
        name.removeprefix(prefix): value if isinstance(value, str) else value.isoformat()
        for name, value in row.items()
        if name.startswith(prefix)
    }
    rows, first = row["num_records"] or 0, row.get("min.offset") or 0
    return Kept(row["path"], row["size_bytes"], rows, partition, first, row.get("max.offset"))


EXPIRED = "packhorse-upkeep-expired"
"""The id under which commits that delete days say up to which; its version is the day's number."""


def whole_from(table: DeltaTable) -> date | None:
    """Return the first day from which on a table has all that it ever had; None: it has all."""
    number = table.transaction_version(EXPIRED)
    return None if number is None else date.fromordinal(number)


def replace(
    location: Location,
    table: str,
    held: DeltaTable,
    gone: Iterable[Kept],
    added: Sequence[File] = (),
    *,
    expired: date | None = None,
) -> None:
    """Take files out of a table and others in, in one commit; what came since `held` stays.

    Readers of changes see no new row. `expired` says that days before it are not whole from now
    on. Raises `CommitFailedError` when another commit has taken files out since `held` was read.
    """
    marks = [fence(held)]
    if expired is not None:
        before = held.transaction_version(EXPIRED) or 0
        marks.append(Transaction(EXPIRED, max(before, expired.toordinal())))
    removed = taken_out(gone, rows_go=expired is not None)
    commit(location, table, held, [*removed, *map(_moved, added)], marks)


def _moved(file: File) -> AddAction:
    """Return what adds a file whose rows the table has had before."""
    new = file.action
    return AddAction(
        *(new.path, new.size, dict(file.partition), new.modification_time, False), stats=new.stats
    )
