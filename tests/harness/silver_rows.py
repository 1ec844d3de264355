"""Rows of the silver tables, as the archive writes them, from what a test cares for."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location

HOUR = 3_600_000
START = 1_767_225_600_000
"""2026-01-01 00:00 UTC in milliseconds; the tests count from here."""

_SCHEMAS = {
    tables.PACKAGES: schemas.PACKAGES,
    tables.STATUSES: schemas.STATUSES,
    tables.ANNOUNCEMENTS: schemas.ANNOUNCEMENTS,
}
_journal_offset = iter(range(10**9))


def at(moment_ms: int) -> datetime:
    """Return so many milliseconds after `START`."""
    return datetime.fromtimestamp((START + moment_ms) / 1000, UTC)


def milliseconds(collected: datetime) -> int:
    """Return what a timestamp, as Spark hands it to Python, is since 1970 UTC."""
    return round(collected.timestamp() * 1000)


def _place(time_ms: int, journal_id: str, offset: int | None = None) -> dict[str, Any]:
    return {
        "partition": 0,
        "offset": next(_journal_offset) if offset is None else offset,
        "time": at(time_ms),
        "journal_id": journal_id,
        "day": at(time_ms).date(),
    }


def package(offset: int, time_ms: int, *, accepted_ms: int | None = None, **changed: Any) -> Any:
    """Return a row of `schemas.PACKAGES`; times count from `START`."""
    accepted = time_ms if accepted_ms is None else accepted_ms
    return {
        **_place(time_ms, "j1", offset),
        "package_id": f"dstrpck-1-{offset:016x}",
        "publisher_agent": "main",
        "action": "ADD",
        "paths": [f"/content/p{offset}"],
        "deep_paths": [],
        **dict.fromkeys(["range_from", "range_to", "user", "producer", "publisher_instance"], ""),
        **dict.fromkeys(["epoch", "sequence"], 0),
        "body_length": 100,
        "node_count": 3,
        "accepted_ms": START + accepted,
        "package_type": "packhorse/1",
        "body_sha256": "",
        "content_length": 0,
        "body_reference": None,
        **changed,
    }


def status(
    offset: int,
    time_ms: int,
    status: str = "IMPORTED",
    *,
    decided_ms: int | None = None,
    **changed: Any,
) -> Any:
    """Return a row of `schemas.STATUSES` about the package at `offset`."""
    decided = time_ms if decided_ms is None else decided_ms
    return {
        **_place(time_ms, "s1"),
        "subscriber": "site",
        "publisher_agent": "main",
        "package_offset": offset,
        "status": status,
        "package_id": f"dstrpck-1-{offset:016x}",
        "attempts": 1,
        "reason": "",
        "command_id": "",
        "decided_ms": START + decided,
        "subscriber_instance": "i",
        "package_journal_id": "j1",
        **changed,
    }


def announcement(time_ms: int, offset: int, *, editable: bool = False, **subscription: Any) -> Any:
    """Return a row of `schemas.ANNOUNCEMENTS` with one subscription."""
    subscriber = subscription.pop("subscriber", "site")
    return {
        **_place(time_ms, "d1"),
        "subscriber": subscriber,
        "subscriptions": [
            {
                "publisher_agent": "main",
                "offset": offset,
                "retries": 0,
                "state": "RUNNING",
                "last_error": "",
                "next_attempt_ms": 0,
                "blocked_since_ms": 0,
                "journal_id": "j1",
                "epoch": 1,
                "settled_offset": offset,
                "started_offset": -1,
                **subscription,
            }
        ],
        "editable": editable,
        "max_retries": -1,
        "endpoint": "",
        "announced_ms": START + time_ms,
        "subscriber_instance": "i",
    }


def append(location: Location, table: str, rows: list[Any]) -> None:
    """Append rows to a silver table, without Spark, which takes a second for each."""
    shape = to_arrow_schema(_SCHEMAS[table], timezone="UTC")
    write_deltalake(
        stored(location, table), pa.Table.from_pylist(rows, schema=shape), mode="append"
    )
