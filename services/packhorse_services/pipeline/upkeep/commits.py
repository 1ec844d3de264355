"""What upkeep does to a table, in commits that no other writer can be in the way of.

Each is made by delta-rs, like those of the archive: on S3 a commit is then a conditional put, and
two writers never take the same version. Spark's own commits there look first and write afterwards,
and have been seen to overwrite what came in between.
"""

from collections.abc import Iterable, Sequence
from datetime import date

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from packhorse_services.pipeline.measures.changes import opened
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File
from packhorse_services.pipeline.storage.table_files import (
    EXPIRED,
    Kept,
    fence,
    files_of,
    number_of,
    taken_out,
    tried_again,
)


def replace(
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
        marks.append(Transaction(EXPIRED, max(before, number_of(expired))))
    removed = taken_out(gone, rows_go=expired is not None)
    held.create_write_transaction(
        [*removed, *map(_moved, added)],
        mode="append",
        schema=held.schema(),
        commit_properties=CommitProperties(app_transactions=marks),
    )


def _moved(file: File) -> AddAction:
    """Return what adds a file whose rows the table has had before."""
    new = file.action
    return AddAction(
        *(new.path, new.size, dict(file.partition), new.modification_time, False), stats=new.stats
    )


@tried_again
def expire(location: Location, table: str, before: date) -> None:
    """Delete the days before `before`. What is added to them meanwhile stays for the next run."""
    held = opened(location, table)
    if held is None:
        return
    gone = [one for one in files_of(held) if one.day < before]
    if gone:
        replace(held, gone, expired=before)
