"""What is done to all jobs that a filter finds: shown first, and done once its number is typed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fastapi import Response

from packhorse.client.errors import Invalid
from packhorse.client.exchange import Document, Request, requested, with_query
from packhorse.jobs.filters import InvalidFilter
from packhorse.runtime import audit
from packhorse_services.console.frame.equivalents import Same, curl
from packhorse_services.console.frame.numbers import whole_number
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.visit import PageVisit, Visit, back_to, page_router
from packhorse_services.console.work.acting import Operator
from packhorse_services.console.work.jobs import Requested
from packhorse_services.console.work.search import OPEN, Search

router = page_router()

MOST = 10_000
"""Jobs that one form changes: the browser waits for it."""
_EXAMPLES = 5

Act = Literal["retry", "stop"]


@dataclass(frozen=True, slots=True)
class _Bulk:
    title: str
    says: str


_ACTS: Mapping[Act, _Bulk] = {
    "retry": _Bulk("Retry jobs", "queued again"),
    "stop": _Bulk("Stop jobs", "stopped, those that run as soon as their consumers look"),
}


@router.get("/jobs/all/{action}")
async def ask_before(visit: PageVisit, action: Act, looked_for: Requested) -> Response:
    """Show how many jobs it would be, and ask for that number."""
    return await _question(visit, action, looked_for)


@router.post("/jobs/all/{action}")
async def change_all(visit: Operator, action: Act, form: Form) -> Response:
    """Do it to as many jobs as were shown and confirmed, and to none that the filter does not find.

    What the filter finds besides by then is left for another time.
    """
    looked_for, count = Search.of(form), whole_number(form.get("count", ""), 1, MOST)
    if count is None or form.get("typed", "").strip() != f"{action} {count}":
        return await _question(visit, action, looked_for, "That was not the text to type.")
    try:
        done = await _bulk(visit, action, looked_for, limit=count)
    except (InvalidFilter, Invalid) as error:
        return await _question(visit, action, looked_for, str(error))
    audit.note(visit.request, changed=done["changed"])
    return back_to("jobs", **looked_for.parameters, done=action, count=done["changed"])


async def _bulk(visit: Visit, action: Act, looked_for: Search, **more: object) -> Document:
    body = {**looked_for.asked(), **more}
    sent = Request("POST", f"/jobs/{action}", "jobs", body=body)
    client, _ = visit.service("jobs", looked_for.at)
    return await client.run(requested(sent))


def _same(visit: Visit, action: Act, looked_for: Search, count: int) -> list[Same]:
    """Return the request; the command line changes one job at a time."""
    _, url = visit.service("jobs", looked_for.at)
    body = json.dumps({**looked_for.asked(), "limit": count})
    return [Same(_ACTS[action].title, "", curl(f"{url}/jobs/{action}", "POST", body))]


async def _question(visit: Visit, action: Act, looked_for: Search, wrong: str = "") -> Response:
    count, examples = 0, list[Document]()
    try:
        counted = await _bulk(visit, action, looked_for, limit=MOST, dry_run=True)
        count = counted["matching"]
        examples = await _examples(visit, action, looked_for) if count else []
    except (InvalidFilter, Invalid) as error:
        wrong = str(error)
    return visit.page(
        "jobs_all.html",
        400 if wrong else 200,
        title=_ACTS[action].title,
        says=_ACTS[action].says,
        action=action,
        requested=looked_for,
        count=count,
        most=MOST,
        wrong=wrong,
        examples=examples,
        same=_same(visit, action, looked_for, count) if count else [],
    )


async def _examples(visit: Visit, action: Act, looked_for: Search) -> list[Document]:
    """Return some of the jobs that would be changed: those of a list that have the state for it."""
    query = looked_for.query(limit=_EXAMPLES)
    if action == "retry" and looked_for.state in ("", "ALL"):
        query["state"] = "HISTORY"
    client, _ = visit.service("jobs", looked_for.at)
    page = await client.get(with_query("/jobs", **query), "jobs")
    rows: list[Document] = page["jobs"]
    return [one for one in rows if (one["state"] in OPEN) == (action == "stop")]
