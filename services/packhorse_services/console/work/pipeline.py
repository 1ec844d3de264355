"""Tasks of the pipeline: when they run and what became of them; and what they have measured."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from fastapi import Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import ClientError, Unreadable
from packhorse.client.exchange import Document
from packhorse_services.console.frame.charts import Chart, delivery_charts
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.visit import PageVisit, PartVisit, Visit, page_router
from packhorse_services.console.work.jobs import At

router = page_router()

_TOPICS, _SCHEDULES = "packhorse/pipeline/**", "packhorse.pipeline."
_RUNS = 20
_REPORT = "/reports/delivery"
_SANDBOX = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_MOST, _MOST_ROWS = 200, 100_000
"""Of subscriptions that are shown, and of rows that are added up: 24 hours of each."""


@router.get("/pipeline")
async def show_pipeline(visit: PageVisit, at: At = "") -> Response:
    """Show the tasks, their runs, and the report of the last 24 hours as it is now."""
    shown, report = await asyncio.gather(_shown(visit, at), _report(visit))
    return visit.page("pipeline.html", **shown, **report, at=at, most=_MOST, same=_same(visit, at))


@router.get("/pipeline/content")
async def show_pipeline_content(visit: PartVisit, at: At = "") -> Response:
    """Return what changes of it; 304 when nothing has."""
    return visit.part("pipeline_content.html", **await _shown(visit, at), at=at)


@router.get("/pipeline/report")
async def show_reports(visit: PageVisit) -> Response:
    """Show the document of all reports: it may do nothing here, and has no session."""
    client, _ = visit.service("pipeline", "")
    answer = await client.answer(f"{_REPORT}.html", "pipeline")
    return Response(answer.content, 200, _SANDBOX, "text/html; charset=utf-8")


async def _shown(visit: Visit, at: str) -> dict[str, Any]:
    """Return the tasks and their runs; where the jobs service has no answer, why."""
    known = bool(visit.served("jobs"))
    shown = {"away": "", "tasks": [], "runs": [], "topics": _TOPICS, "told": known}
    if not known:
        return shown
    client, _ = visit.service("jobs", at)
    try:
        schedules, runs = await asyncio.gather(
            client.schedules(), client.jobs(topic=_TOPICS, limit=_RUNS)
        )
    except ClientError as error:
        return {**shown, "away": str(error)}
    tasks = [one for one in schedules if one["name"].startswith(_SCHEDULES)]
    return {**shown, "tasks": tasks, "runs": runs}


async def _report(visit: Visit) -> dict[str, Any]:
    found = _Report()
    if not visit.served("pipeline"):
        return {"measured": [], "charts": [], "wrong": "", "known": False}
    client, _ = visit.service("pipeline", "")
    try:
        found = await _rows(client)
    except ClientError as error:
        found = _Report(wrong=str(error))
    shown = {"measured": _added_up(found.rows), "charts": found.charts, "wrong": found.wrong}
    return {**shown, "known": True}


def _same(visit: Visit, at: str) -> list[Same]:
    """Return it for the parts that are there; the command line makes a report without a service."""
    lines = []
    if visit.served("jobs"):
        _, url = visit.service("jobs", at)
        found = curl(f"{url}/schedules")
        lines.append(same("The tasks", ["get", "schedules", "--server", url], found))
    url = visit.service("pipeline", "")[1] if visit.served("pipeline") else "PIPELINE_URL"
    report = same("The report", ["report", "delivery"], curl(f"{url}{_REPORT}"))
    return [*lines, report, Same("All reports as a document", "", curl(f"{url}{_REPORT}.html"))]


@dataclass(frozen=True, slots=True)
class _Report:
    """Rows of the last 24 hours, the oldest hour first."""

    rows: Sequence[Document] = ()
    since: str = ""
    until: str = ""
    wrong: str = ""

    @property
    def charts(self) -> list[Chart]:
        return delivery_charts(self.since, self.until, self.rows) if self.rows else []


async def _rows(client: AsyncClient) -> _Report:
    """Return them. Raises `ClientError`."""
    rows, query, page = list[Document](), "limit=10000", Document()
    while query:
        page = await client.get(f"{_REPORT}?{query}", "pipeline")
        rows += page["rows"]
        query = urlsplit(page["next"] or "").query
        if query and len(rows) >= _MOST_ROWS:
            raise Unreadable(f"there are more than {_MOST_ROWS:,} rows: too many for a page")
    return _Report(rows, page["from"], page["to"])


def _added_up(rows: Sequence[Document]) -> list[dict[str, Any]]:
    """Return a row for each subscriber and agent, those that failed most first."""
    by = sorted(rows, key=_subscription)  # stable: the hours stay in their order
    found = [_sum(name, [*hours]) for name, hours in groupby(by, key=_subscription)]
    return sorted(found, key=lambda one: (-one["failures"], -one["backlog"]))


def _subscription(row: Document) -> tuple[str, str]:
    return row["subscriber"], row["publisher_agent"]


def _sum(name: tuple[str, str], hours: Sequence[Document]) -> dict[str, Any]:
    latest = [one["latency_p95_ms"] for one in hours if one["latency_p95_ms"] is not None]
    return {
        "subscriber": name[0],
        "agent": name[1],
        "p95_s": max(latest) / 1000 if latest else None,
        "backlog": hours[-1]["backlog_end"],
        "blocked_s": sum(one["blocked_ms"] for one in hours) / 1000,
        **{
            column: sum(one[column] for one in hours)
            for column in ("delivered", "failures", "removed")
        },
    }
