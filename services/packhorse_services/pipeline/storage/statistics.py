"""What the log of a Delta table says of a file's columns, so that readers pass files over.

Every column has its count of nulls, and every one that can be ordered its least and greatest value:
delta-rs takes a missing bound for one that no row meets, and an Arrow filter on that column would
then find nothing (Delta transaction log protocol, "Per-file Statistics").
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MOST_TEXT = 32
"""Characters of a text that are kept, as Delta's own writers keep them."""

_LAST = "\U0010ffff"
"""No other character is greater: behind the beginning of a text it is a bound above the text."""


class FileStatistics:
    """Collects the statistics of a file while its rows come."""

    def __init__(self) -> None:
        self._nulls: dict[str, int] = {}
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}

    def take(self, rows: pa.RecordBatch) -> None:
        """Count in rows that are written to the file."""
        for column in rows.schema:
            if pa.types.is_nested(column.type):
                continue
            values = rows.column(column.name)
            self._nulls[column.name] = self._nulls.get(column.name, 0) + values.null_count
            if has_bounds(column.type) and values.null_count < len(values):
                self._widen(column.name, pc.min_max(values).as_py())

    def as_json(self, rows: int) -> str:
        """Return the `stats` of the file's add action, given how many rows it has."""
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: _below(value) for name, value in self._least.items()},
                "maxValues": {name: _above(value) for name, value in self._greatest.items()},
                "nullCount": self._nulls,
            }
        )

    def _widen(self, name: str, found: dict[str, Any]) -> None:
        self._least[name] = min(found["min"], self._least.get(name, found["min"]))
        self._greatest[name] = max(found["max"], self._greatest.get(name, found["max"]))


def has_bounds(kind: pa.DataType) -> bool:
    """Return whether the values of a column have a least and a greatest one in statistics."""
    return any(is_one(kind) for is_one in _ORDERED)


def bounded(schema: pa.Schema) -> list[str]:
    """Return the columns that have bounds."""
    return [column.name for column in schema if has_bounds(column.type)]


_ORDERED: Iterable[Any] = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_timestamp,
)


def _below(value: Any) -> Any:
    return value[:_MOST_TEXT] if isinstance(value, str) else _plain(value)


def _above(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MOST_TEXT else value[:_MOST_TEXT] + _LAST
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value
