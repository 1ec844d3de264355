"""The questions of docs/tables.md, tables to ask, and what must be answered."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import BatchMark, append, prepare
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import Files
from tests.harness import silver_rows as rows
from tests.harness.silver_rows import HOUR
from tests.harness.table_page import PAGE, PREPARED

_DAY, _SECOND = 24 * HOUR, 1000
_TODAY = "DATE '2026-01-02'"

QUERIES: Mapping[str, str] = {
    title: text.replace("current_date", _TODAY)
    for title, text in re.findall(
        r"^### ([^\n]+\?)\n(?:(?!#)[^\n]*\n)*?```sql\n(.*?)^```", PAGE.read_text(), re.M | re.S
    )
}
OPENING_DUCKDB, OPENING_SPARK, _ = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S
)


def opened_as_documented(
    folder: str, options: Mapping[str, str] = MappingProxyType({})
) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the tables, opened by the lines of the page."""
    scope: dict[str, Any] = {}
    exec(with_folder(OPENING_DUCKDB, folder, options), scope)
    opened: duckdb.DuckDBPyConnection = scope["database"]
    return opened


def with_folder(lines: str, folder: str, options: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the page's lines that open the tables, with these for the page's folder."""
    for name, own in (("folder", folder), ("options", dict(options))):
        line = f"{name} = {own!r}"
        lines, found = re.subn(rf"^{name} = .*$", lambda _, line=line: line, lines, flags=re.M)
        assert found == 1, f"the page sets {name} once"
    return lines


def in_spark(query: str) -> str:
    """Return a query of the page as the page says that Spark takes it."""
    return query.replace("unnest(", "explode(")


def _package(offset: int, time_ms: int, *paths: str, **changed: Any) -> dict[str, Any]:
    plain = {"paths": list(paths), "user": "ann", "producer": "main", "sequence": offset}
    return dict(rows.package(offset, time_ms, **{**plain, **changed}))


def _status(subscriber: str, offset: int, status: str, attempts: int, reason: str = "") -> Any:
    said = {"subscriber": subscriber, "attempts": attempts, "reason": reason}
    return rows.status(offset, 2 * HOUR, status, **said)


def _measure(hour: int, **columns: Any) -> dict[str, Any]:
    moment = rows.at(hour * HOUR)
    return {"publisher_agent": "main", "hour": moment, "day": moment.date(), **columns}


def _delivery(subscriber: str, hour: int, p95: int | None, **counts: Any) -> dict[str, Any]:
    latency = {f"latency_{which}_ms": p95 for which in ("p50", "p95", "p99", "max")}
    return _measure(hour, subscriber=subscriber, **latency, **counts)


def _failure(subscriber: str, hour: int, reason: str, count: int) -> dict[str, Any]:
    return _measure(hour, subscriber=subscriber, reason=reason, count=count)


def _slow(subscriber: str, rank: int, offset: int, latency_ms: int) -> dict[str, Any]:
    shown = {"rank": rank, "path": f"/p{offset}", "paths": 1, "latency_ms": latency_ms}
    named = {"offset": offset, "package_id": _id(offset)}
    return _measure(1, subscriber=subscriber, **shown, **named)


def _command(time_ms: int, command_id: str, **columns: Any) -> dict[str, Any]:
    place = rows.status(0, time_ms)
    return {**place, "command_id": command_id, "user": "ann", "subscriber": "slow", **columns}


def _id(offset: int) -> str:
    return f"dstrpck-1-{offset:016x}"


def _outside(path: str) -> str:
    return f"'{path}' is outside the import roots"


_TWICE = {"package_id": _id(4), "sequence": 4}
_CONTENT: Mapping[str, list[dict[str, Any]]] = {
    tables.PACKAGES: [
        _package(0, -10 * _DAY, "/site/news/n1", user="old", body_length=10**6),
        _package(1, HOUR, deep_paths=["/site"], user="bob", body_length=5000, node_count=40),
        _package(2, HOUR + 1, "/site/newsletter", action="DELETE"),
        _package(3, HOUR + 2, "/site/news/n1", action="TEST"),
        _package(4, HOUR + 3, "/site/news/n2", "/other", action="INVALIDATE"),
        _package(5, HOUR + 4, "/site/news/n2", "/other", action="INVALIDATE", **_TWICE),
        _package(6, HOUR + 5, "/site/news", deep_paths=["/sit", "/site/news/deep"]),
    ],
    tables.STATUSES: [
        _status("fast", 1, "IMPORTED", 1),
        _status("slow", 1, "IMPORTED", 3),
        _status("narrow", 1, "REMOVED_FAILED", 2, _outside("/site")),
        _status("narrow", 1, "REMOVED_FAILED", 2, _outside("/site")),  # sent again
        _status("narrow", 4, "REMOVED_FAILED", 1, _outside("/other")),
    ],
    tables.ANNOUNCEMENTS: [
        rows.announcement(-_DAY, 0, subscriber="slow", state="STOPPED"),
        rows.announcement(HOUR, 0, subscriber="slow", state="PAUSED"),
        rows.announcement(HOUR + 10 * _SECOND, 0, subscriber="slow", state="PAUSED"),
        rows.announcement(2 * HOUR, 1, subscriber="slow", state="RUNNING"),
        rows.announcement(3 * HOUR, 1, subscriber="fast", state="IDLE"),
    ],
    tables.EVENTS: [
        _package(1, 2 * HOUR, package_offset=1, imported=["fast"], failed=["narrow"], away=["far"]),
        _package(2, 2 * HOUR, package_offset=2, imported=["fast", "slow"]),
    ],
    tables.COMMANDS: [
        _command(HOUR, "c1", kind="CONTROL", desired="PAUSE"),
        _command(HOUR + 1, "c2", kind="CLEAR", up_to=5),
    ],
    tables.COMMAND_STATUSES: [
        _command(HOUR, "c1", state="SEEN"),
        _command(HOUR, "c1", state="APPLIED"),
        _command(HOUR + 1, "c2", state="SEEN"),
    ],
    tables.DELIVERY: [
        _delivery("fast", -1, 90_000, delivered=1),
        _delivery("fast", 1, 30, delivered=5),
        _delivery("slow", 1, 700, delivered=2, blocked_ms=600, backlog_end=3, failures=2),
        _delivery("slow", 2, 9_000, delivered=3),
        _delivery("narrow", 1, None, backlog_end=7, failures=4),
        _delivery("idle", 1, None),
    ],
    tables.FAILURES: [
        _failure("narrow", 1, _outside("/site"), 2),
        _failure("narrow", 2, _outside("/other"), 3),
        _failure("slow", 1, "timeout", 2),
        _failure("slow", -1, "timeout", 9),
    ],
    tables.SLOWEST: [
        _slow("slow", 1, 1, 9_000),
        _slow("slow", 4, 2, 8_000),
        _slow("fast", 1, 4, 30),
    ],
}


def written(location: Location, *names: str) -> None:
    """Write all tables, as the pipeline does, or only these."""
    prepare(location, PREPARED)
    for number, name in enumerate(names or _CONTENT):
        files = Files(location)
        files.add(name, _batch(name, _CONTENT[name]))
        actions = [file.action for file in files.close()]
        append(location, name, BatchMark(number, number + 1), actions)


def _batch(name: str, content: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    shape = to_arrow_schema(PREPARED[name], timezone="UTC")
    full = [{one.name: row.get(one.name, _nothing(one)) for one in shape} for row in content]
    return pa.RecordBatch.from_pylist(full, shape)


def _nothing(column: pa.Field) -> Any:
    if column.nullable:
        return None
    kinds = {pa.types.is_list: [], pa.types.is_string: "", pa.types.is_boolean: False}
    return next((empty for is_one, empty in kinds.items() if is_one(column.type)), 0)


def _at(time_ms: int) -> datetime:
    return rows.at(time_ms)


ANSWERS: Mapping[str, list[tuple[Any, ...]]] = {
    "Which subscriber was slowest yesterday?": [
        ("narrow", "main", None, None, 0, 4, 0, 7),
        ("slow", "main", 9_000, 9_000, 5, 2, 600, 3),
        ("fast", "main", 30, 30, 5, 0, 0, 0),
    ],
    "What failed yesterday, at whom and why?": [
        ("narrow", "main", "'/… is outside the import roots", 5, _outside("/site"), _at(2 * HOUR)),
        ("slow", "main", "timeout", 2, "timeout", _at(HOUR)),
    ],
    "What kept a subscriber from importing yesterday?": [
        ("slow", "main", "PAUSED", "", _at(HOUR), _at(HOUR + 10 * _SECOND)),
    ],
    "When was each subscriber last heard of?": [("slow", _at(2 * HOUR)), ("fast", _at(3 * HOUR))],
    "Which packages took longest yesterday, how large were they, and who sent them?": [
        ("slow", 9_000, "/p1", 1, 5000, 40, "bob", _at(HOUR)),
        ("fast", 30, "/p4", 1, 100, 3, "ann", _at(HOUR + 3)),
    ],
    "How long did an import take by the hour?": [
        (_at(HOUR), "fast", 5, 30, 30, 30),
        (_at(HOUR), "slow", 2, 700, 700, 700),
        (_at(2 * HOUR), "slow", 3, 9_000, 9_000, 9_000),
    ],
    "Which packages failed most last week, and at whom?": [
        (_id(1), 2, 5, "narrow", _outside("/site"), []),
        (_id(4), 1, 1, "narrow", _outside("/other"), ["/site/news/n2", "/other"]),
    ],
    "What changed below /site/news last week, and by whom?": [
        (_at(HOUR), "ADD", "/site", True, "bob", _id(1)),
        (_at(HOUR + 3), "INVALIDATE", "/site/news/n2", False, "ann", _id(4)),
        (_at(HOUR + 4), "INVALIDATE", "/site/news/n2", False, "ann", _id(4)),
        (_at(HOUR + 5), "ADD", "/site/news", False, "ann", _id(6)),
        (_at(HOUR + 5), "ADD", "/site/news/deep", True, "ann", _id(6)),
    ],
    "Who published most last week?": [
        ("bob", "main", 1, 5000, 40, _at(HOUR)),
        ("ann", "main", 5, 500, 15, _at(HOUR + 5)),
    ],
    "Which packages are in the journal twice, after a time-out?": [
        ("main", "main", 0, 4, 2, 4, 5, _id(4)),
    ],
    "Which packages of last week did not reach every subscriber?": [
        (_at(2 * HOUR), _id(1), [], [], ["narrow"], [], [], ["far"]),
    ],
    "Who gave which command, and what became of it?": [
        (_at(HOUR), "ann", "CONTROL", "PAUSE", None, "slow", "main", "APPLIED", 0, ""),
        (_at(HOUR + 1), "ann", "CLEAR", None, 5, "slow", "main", None, None, None),
    ],
}


def answer(found: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of an answer; times are UTC."""
    return [tuple(row.values()) for row in found.to_pylist()]
