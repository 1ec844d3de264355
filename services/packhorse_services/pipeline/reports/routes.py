"""Reports over HTTP: pages of rows as JSON or CSV, and one document to look at."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from packhorse.runtime.auth import Principal, TokenScope, require
from packhorse.runtime.entity_tags import KnownTags, kept
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.pipeline.reports import document, reading
from packhorse_services.pipeline.reports.query import (
    ReportSelection,
    WrongPeriod,
    period,
    read_key,
    time_text,
    write_key,
)
from packhorse_services.pipeline.reports.reading import MOST_ROWS, Form, ReportQuery, ReportTables
from packhorse_services.pipeline.reports.schemas import (
    DELIVERY,
    FAILURES,
    PUBLISHING,
    SLOWEST,
    DeliveryReport,
    FailureReport,
    PublishingReport,
    ReportKind,
    SlowestReport,
)

router = APIRouter(route_class=StrictRoute, prefix="/reports", tags=["reports"])

_TIME = {"format": "date-time"}
_POLICY = f"{document.POLICY}; frame-ancestors 'none'"
Reader = Annotated[Principal, Depends(require(TokenScope.QUEUES_READ))]
Begin = Annotated[
    str | None,
    Query(
        alias="from",
        max_length=40,
        json_schema_extra=_TIME,
        description="The hour with this time is the first; 24 h before `to` by default",
    ),
]
End = Annotated[
    str | None,
    Query(
        alias="to",
        max_length=40,
        json_schema_extra=_TIME,
        description="The hour before this time is the last; now by default",
    ),
]
Agent = Annotated[str | None, Query(max_length=200)]
Subscriber = Annotated[str | None, Query(max_length=200)]


async def hours(caller: Reader, begin: Begin = None, end: End = None) -> tuple[datetime, datetime]:
    """Return the hours that the caller asks for."""
    del caller  # known before anything is said about the query
    try:
        return period(begin, end, datetime.now(UTC))
    except WrongPeriod as error:
        given = begin if error.name == "from" else end
        became_space = " (a + is written %2B in a URL)" if " " in (given or "") else ""
        raise _refused(error.name, error.why + became_space) from None


def _refused(name: str, why: str) -> Problem:
    errors = [{"pointer": f"query/{name}", "detail": why}]
    return Problem(422, detail="the query can't be answered; see errors", errors=errors)


async def agents(caller: Reader, publisher_agent: Agent = None) -> tuple[str, ...] | None:
    """Return the publisher agents that the answer is about; None for all."""
    if publisher_agent is None:
        return caller.agents
    if not caller.may_deal_with(publisher_agent):
        raise Problem(403, detail=f"this token is not for the publisher agent {publisher_agent}")
    return (publisher_agent,)


Hours = Annotated[tuple[datetime, datetime], Depends(hours)]
Agents = Annotated[tuple[str, ...] | None, Depends(agents)]


async def subscription_selection(
    hours: Hours, agents: Agents, subscriber: Subscriber = None
) -> ReportSelection:
    """Return what is asked of a report whose rows belong to subscribers."""
    return ReportSelection(*hours, subscriber, agents)


async def agent_selection(hours: Hours, agents: Agents) -> ReportSelection:
    """Return what is asked of a report on publisher agents."""
    return ReportSelection(*hours, None, agents)


class PageRequest:
    """Which page, and in which form."""

    def __init__(
        self,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 1000,
        cursor: Annotated[str | None, Query(max_length=10_000)] = None,
        form: Annotated[
            Literal["json", "csv"] | None,
            Query(alias="format", description="Overrules the header Accept"),
        ] = None,
        accept: Annotated[str, Header(max_length=2000, include_in_schema=False)] = "",
    ) -> None:
        self.limit, self.cursor = limit, cursor
        self.form: Form = form or ("csv" if _prefers_csv(accept) else "json")


Selected = Annotated[ReportSelection, Depends(subscription_selection)]
SelectedAgents = Annotated[ReportSelection, Depends(agent_selection)]
RequestedPage = Annotated[PageRequest, Depends()]


def _responses(model: Any) -> dict[int | str, dict[str, Any]]:
    content = {"text/csv": {"schema": {"type": "string"}}}
    return {
        200: {"model": model, "content": content, "description": "A page of the report"},
        304: {"description": "Unchanged since the ETag that was sent"},
        **documented(503),
    }


@router.get("/delivery", responses=_responses(DeliveryReport), response_model=DeliveryReport)
async def get_delivery_report(
    request: Request, selected: Selected, page: RequestedPage, known: KnownTags
) -> Response:
    """Return latency, throughput, backlog and time blocked, by hour and subscriber."""
    return await _answer(request, DELIVERY, selected, page, known)


@router.get("/failures", responses=_responses(FailureReport), response_model=FailureReport)
async def get_failure_report(
    request: Request, selected: Selected, page: RequestedPage, known: KnownTags
) -> Response:
    """Return how often subscribers failed, by hour and reason."""
    return await _answer(request, FAILURES, selected, page, known)


@router.get("/slowest", responses=_responses(SlowestReport), response_model=SlowestReport)
async def get_slowest_report(
    request: Request, selected: Selected, page: RequestedPage, known: KnownTags
) -> Response:
    """Return the paths that took longest, by hour and subscriber."""
    return await _answer(request, SLOWEST, selected, page, known)


@router.get("/publishing", responses=_responses(PublishingReport), response_model=PublishingReport)
async def get_publishing_report(
    request: Request, selected: SelectedAgents, page: RequestedPage, known: KnownTags
) -> Response:
    """Return what publisher agents accepted, by hour."""
    return await _answer(request, PUBLISHING, selected, page, known)


@router.get(
    "/delivery.html",
    responses={
        200: {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "A page"},
        304: {"description": "Unchanged since the ETag that was sent"},
        **documented(503),
    },
    response_class=Response,
)
async def get_delivery_document(request: Request, selected: Selected, known: KnownTags) -> Response:
    """Return all reports as one HTML document with plots, which refers to nothing else."""
    tables: ReportTables = request.app.state.tables
    versions = await asyncio.to_thread(document.versions_of, tables)
    digest = document.tag(versions, selected)
    headers = {**kept(digest), "Content-Security-Policy": _POLICY}
    if digest in known:
        return Response(status_code=304, headers=headers)
    shown = await asyncio.to_thread(document.render, versions, selected)
    return Response(shown, 200, headers, "text/html; charset=utf-8")


async def _answer(
    request: Request,
    report: ReportKind,
    selected: ReportSelection,
    page: PageRequest,
    known: KnownTags,
) -> Response:
    tables: ReportTables = request.app.state.tables
    behind = tuple(read_key(report, page.cursor)) if page.cursor is not None else None
    requested = ReportQuery(report, selected, page.limit, behind, page.form)
    version = await asyncio.to_thread(reading.version_of, tables, requested)
    digest = requested.tag(version)
    headers = {**kept(digest), "Vary": "Accept"}
    if digest in known:
        return Response(status_code=304, headers=headers)
    found = await asyncio.to_thread(reading.read_page, version, requested)
    following = _following(request, requested, found)
    if following is not None:
        headers["Link"] = f'<{following}>; rel="next"'
    if requested.form == "csv":
        shown = reading.as_csv(report.columns, found.rows)
        return Response(shown, 200, headers, reading.CSV)
    return Response(reading.as_json(requested, found, following), 200, headers, "application/json")


def _following(request: Request, requested: ReportQuery, page: reading.ReportPage) -> str | None:
    """Return where the report goes on: the same hours, also when they were those until now."""
    if page.last_key is None:
        return None
    given = {
        k: v for k, v in request.query_params.items() if k in ("subscriber", "publisher_agent")
    }
    hours = {"from": time_text(requested.selection.begin), "to": time_text(requested.selection.end)}
    place = {
        "limit": requested.limit,
        "cursor": write_key(page.last_key),
        "format": requested.form,
    }
    return f"{request.url.path}?{urlencode({**hours, **given, **place})}"


def _prefers_csv(accept: str) -> bool:
    """Return whether text/csv is named, and wanted more than JSON; unknown types mean nothing."""
    wanted = {"text/csv": 0.0, "application/json": 0.0}
    for part in accept.split(","):
        name, *parameters = [piece.strip().lower() for piece in part.split(";")]
        if name in wanted:
            wanted[name] = _quality(parameters)
    return wanted["text/csv"] > wanted["application/json"]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
