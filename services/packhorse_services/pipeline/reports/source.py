"""The tables of measures as delta-rs reads them: no Java, and never a whole table in memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from packhorse.errors import Transient
from packhorse_services.pipeline.errors import SchemaChanged
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import rows

_PATIENCE = {"connect_timeout": "3s", "timeout": "20s", "max_retries": "2", "retry_timeout": "20s"}
"""A caller waits for the answer; the client's own patience is minutes."""

Row = dict[str, Any]


class TablesAway(Transient):
    """The place of the tables can't be reached, or a table changed while it was read."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table. `tag` differs between any two, a table made anew included."""

    tag: str
    _table: DeltaTable

    def rows(self, sql: str) -> Iterator[Row]:
        """Yield what a query on `RELATION` gives, a batch in memory. Raises `TablesAway`."""
        with _reaching(OSError):  # a query that is wrong is a fault of ours
            yield from rows(self._table, sql)


@dataclass(frozen=True, slots=True)
class ReportTables:
    """The tables below one place, which others write."""

    location: Location

    def check(self) -> None:
        """Raise `TablesAway` unless the place can be reached."""
        if self.location.is_s3:
            self.latest("measures", ())
        elif not Path(self.location.base).is_dir():
            raise TablesAway(
                f"the folder {self.location.base} is not there; check PACKHORSE_TABLES_URL, or "
                "make an archive there with packhorse-pipeline archive"
            )

    def latest(self, name: str, columns: Sequence[str]) -> TableVersion | None:
        """Return the table's newest version, or None for a table that nobody has written yet.

        Raises `TablesAway`, and `SchemaChanged` unless it has the columns.
        """
        if not self.location.is_s3:
            self.check()
        options = self.location.delta_options()
        with _reaching(DeltaError, OSError):
            try:
                table = DeltaTable(
                    self.location.delta_uri(name),
                    storage_options={**options, **_PATIENCE} if self.location.is_s3 else None,
                )
            except TableNotFoundError:
                return None
            found = {field.name for field in table.schema().fields}
            tag = f"{table.metadata().id}-{table.version()}"
        if missing := [column for column in columns if column not in found]:
            raise SchemaChanged(
                f"table {name} lacks the column {missing[0]}, another build has written it; remove "
                "the folder measures, and run packhorse-pipeline measures --all"
            )
        return TableVersion(tag, table)


@contextmanager
def _reaching(*faults: type[Exception]) -> Iterator[None]:
    try:
        yield
    except faults as error:
        said = " ".join(str(error).replace("\x1b[31m↳\x1b[0m", "").split())
        raise TablesAway(f"the tables can't be read now: {said[:300]}") from error
