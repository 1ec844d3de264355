"""Measures tables as the pipeline writes them, made without Spark, and the service on them."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.principal import Principal
from packhorse_services.pipeline.reports.app import reports_app
from packhorse_services.pipeline.reports.schemas import REPORTS
from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
WHEN = {"from": "2026-11-21T00:00:00Z", "to": "2026-11-22T00:00:00Z"}
_SCHEMAS = {
    "delivery": schemas.DELIVERY,
    "failures": schemas.FAILURES,
    "slowest": schemas.SLOWEST,
    "publishing": schemas.PUBLISHING,
}
_TABLES = (
    *(tables.PUBLISHING, tables.FAILURES, tables.SLOWEST),
    *(tables.SUBSCRIPTIONS, tables.DELIVERY),
)
_LATENCY = {f"latency_{which}_ms": 1000 for which in ("p50", "p95", "p99", "max")}
_SUBSCRIPTION = {"subscriber": "sub1", "publisher_agent": "main", "hour": NOON}
_PLAIN: Mapping[str, Mapping[str, Any]] = {
    "delivery": {**_SUBSCRIPTION, **_LATENCY, "delivered": 10, "editable": True},
    "failures": {**_SUBSCRIPTION, "reason": "refused", "count": 1},
    "slowest": {**_SUBSCRIPTION, "rank": 1, "path": "/a", "package_id": "dstrpck-1", "paths": 1},
    "publishing": {"publisher_agent": "main", "hour": NOON, "packages": 10, **_LATENCY},
}


def measure(location: Location, report: str, *rows: Mapping[str, Any]) -> None:
    """Append rows to a report's table; what a row leaves out is that of a plain one, or 0."""
    schema = to_arrow_schema(_SCHEMAS[report], timezone="UTC")
    zeros = {field.name: 0 for field in schema}
    full = [zeros | _PLAIN[report] | row for row in rows]
    dated = [{**row, "day": row["hour"].date()} for row in full]
    write_deltalake(
        location.delta_uri(REPORTS[report].table),
        pa.Table.from_pylist(dated, schema=schema),
        mode="append",
        partition_by=["day"],
        storage_options=location.delta_options(),
    )


class _Everything:
    """Tokens that are the agents they are for, with a comma between; `all` is for all."""

    async def principal(self, token: str) -> Principal | None:
        agents = None if token == "all" else tuple(token.split(","))
        return Principal("caller", frozenset({"queues:read"}), agents=agents)


class Reports:
    """The service, asked without a network."""

    def __init__(self, location: Location) -> None:
        self._app = reports_app(location, Authenticator(_Everything()))

    def get(
        self, path: str, token: str = "all", headers: Mapping[str, str] | None = None, **query: Any
    ) -> httpx.Response:
        """Ask for a report of the day of `NOON`, unless `query` names other hours."""
        begun = {**WHEN, **query} if "?" not in path and path.startswith("/reports") else query
        requested = {name: value for name, value in begun.items() if value is not None}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            sent = {"Authorization": f"Bearer {token}", **(headers or {})}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.get(path, params=requested or None, headers=sent)

        return asyncio.run(ask())

    def rows(self, report: str, **query: Any) -> list[dict[str, Any]]:
        """Return the rows of a report that fits a page."""
        answer = self.get(f"/reports/{report}", **query)
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, Any]] = answer.json()["rows"]
        return rows


def contents(location: Location) -> dict[str, list[str]]:
    """Return the rows of each table of measures as text."""
    return {
        name: sorted(map(str, stored(location, name).to_pyarrow_table().to_pylist()))
        for name in _TABLES
    }
