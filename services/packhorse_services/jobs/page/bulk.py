"""What is done to all jobs that a filter finds: shown first, and done once its number is typed."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from packhorse.errors import Permanent
from packhorse.jobs.job import Job
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.ledger.changing import BulkResult, JobChange
from packhorse.jobs.sessions import reading
from packhorse.runtime import audit
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.pages.session import Form
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.page.acting import Operator
from packhorse_services.jobs.page.rendering import PAGES, refused
from packhorse_services.jobs.page.routes import RequestedSearch, VisitorOrForm
from packhorse_services.jobs.page.search import Search, parse_search
from packhorse_services.jobs.page.shown import examples

router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)

MOST = 10_000
"""Jobs that one form changes: the browser waits for it."""

Act = Literal["retry", "stop"]


@dataclass(frozen=True, slots=True)
class _Bulk:
    what: JobChange
    title: str
    says: str
    do: Callable[..., BulkResult]


_ACTS: Mapping[str, _Bulk] = {
    "retry": _Bulk(JobChange.RETRY, "Retry jobs", "queued again", Jobs.bulk_retry),
    "stop": _Bulk(
        JobChange.STOP,
        "Stop jobs",
        "stopped, those that run as soon as their consumers look",
        Jobs.bulk_stop,
    ),
}


@router.get("/jobs/all/{action}")
async def ask_before(
    request: Request, who: VisitorOrForm, action: Act, requested: RequestedSearch
) -> Response:
    """Show how many jobs it would be, and ask for that number."""
    if isinstance(who, Response):
        return who
    return await _question(request, action, requested, "")


@router.post("/jobs/all/{action}")
async def change_all(request: Request, action: Act, form: Form, _who: Operator) -> Response:
    """Do it to as many jobs as were shown and confirmed, and to none that the filter does not find.

    What the filter finds besides by then is left for another time.
    """
    requested, shown = parse_search(form.get("filter", "")), form.get("count", "")
    if not _is_count(shown) or form.get("typed", "").strip() != _phrase(action, int(shown)):
        return await _question(request, action, requested, "That was not the text to type.")
    act, jobs = _ACTS[action], of(request).jobs
    try:
        done = await asyncio.to_thread(act.do, jobs, requested.filter(), limit=int(shown))
    except Permanent as error:
        return refused(error)
    audit.note(request, changed=done.changed)
    reported = urlencode({"done": action, "count": done.changed})
    return RedirectResponse(f"{PREFIX}/jobs?{requested.query(after='')}&{reported}", 303)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) <= MOST


def _phrase(action: str, count: int) -> str:
    return f"{action} {count}"


async def _question(request: Request, action: Act, requested: Search, wrong: str) -> Response:
    act, parts = _ACTS[action], of(request)
    try:
        wanted = requested.filter()
        count = await asyncio.to_thread(of(request).jobs.count, wanted, act.what, most=MOST)
    except Permanent as error:
        return refused(error)

    def look() -> list[Job]:
        with reading(parts.pool.connection) as connection:
            return examples(connection, wanted, act.what)

    return PAGES.page(
        "all.html",
        400 if wrong else 200,
        title=act.title,
        wrong=wrong,
        action=action,
        requested=requested,
        count=count,
        most=MOST,
        says=act.says,
        phrase=_phrase(action, count),
        examples=await asyncio.to_thread(look) if count else [],
    )
