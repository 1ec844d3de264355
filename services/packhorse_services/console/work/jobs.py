"""Jobs: what waits, runs and has ended, with the queues that they stand in; and one of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import Refused
from packhorse.client.exchange import Document, segment, with_query
from packhorse.jobs.filters import InvalidFilter, StateGroup
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.visit import PageVisit, Visit, followed_page, page_router
from packhorse_services.console.upstream import cursor_of
from packhorse_services.console.work.search import Search

router = page_router()

_ROWS = 50
Requested = Annotated[Search, Depends()]
Number = Annotated[int, Path(ge=1, lt=2**63)]
At = Annotated[str, Query(max_length=255)]
Done = Annotated[str, Query(max_length=20)]
Count = Annotated[int, Query(ge=0, le=2**53)]

_DONE = {
    "retry": "It is queued again.",
    "stop": "It is stopped, or its consumer is asked to.",
    "remove": "The job is removed.",
}
_DONE_MANY = {"retry": "jobs are queued again.", "stop": "jobs are stopped, or asked to."}


@dataclass(frozen=True, slots=True)
class JobsShown:
    """Jobs with their queues and the topics that nobody works on; `wrong` is said of the filter."""

    rows: Sequence[Document]
    following: str
    wrong: str
    lonely: Sequence[Document]
    queues: Sequence[Document]
    same: Sequence[Same]


@followed_page(router, "/jobs")
async def show_jobs(
    visit: PageVisit, requested: Requested, done: Done = "", count: Count | None = None
) -> Response:
    """Show jobs by a filter, and the queues."""
    many = f"{count} {_DONE_MANY[done]}" if count is not None and done in _DONE_MANY else ""
    return visit.followed(
        "jobs",
        shown=await _shown(visit, requested),
        requested=requested,
        served=visit.served("jobs"),
        states=[*StateGroup],
        notice=many or _DONE.get(done, ""),
    )


@followed_page(router, "/jobs/{number}")
async def show_job(visit: PageVisit, number: Number, at: At = "", done: Done = "") -> Response:
    """Show one job with its attempts and its log."""
    shown = await _job(visit, at, number)
    return visit.followed("job", **shown, notice=_DONE.get(done, ""))


async def _shown(visit: Visit, requested: Search) -> JobsShown:
    client, url = visit.service("jobs", requested.at)
    (rows, following, wrong), topics, queues = await asyncio.gather(
        _found(client, requested), client.job_topics(), client.job_queues()
    )
    return JobsShown(
        rows,
        requested.url(after=following) if following else "",
        wrong,
        [one for one in topics if one["unconsumed_since"] or one["unconsumed_on"]],
        queues,
        [] if wrong else _same(url, requested),
    )


async def _found(client: AsyncClient, requested: Search) -> tuple[list[Document], str, str]:
    try:
        query = requested.query(limit=_ROWS, cursor=requested.after or None)
        page = await client.get(with_query("/jobs", **query), "jobs")
    except (InvalidFilter, Refused) as error:
        return [], "", str(error)
    return page["jobs"], cursor_of(page["next"]), ""


async def _job(visit: Visit, at: str, number: int) -> dict[str, Any]:
    client, url = visit.service("jobs", at)
    job = await client.job(number)
    lonely = suspended = False
    if job["state"] == "QUEUED":
        queue, topics = await asyncio.gather(
            client.get(f"/job-queues/{segment(job['queue'])}", "jobs"), client.job_topics()
        )
        suspended = queue["suspended"]
        lonely = any(_waits_for(one, job) for one in topics)
    words = ["--server", url, str(number)]
    lines = [
        same("This job", ["get", "job", *words], curl(f"{url}/jobs/{number}")),
        same("Retry", ["job", "retry", *words], curl(f"{url}/jobs/{number}/retry", "POST")),
        same("Stop", ["job", "stop", *words], curl(f"{url}/jobs/{number}/stop", "POST")),
        same("Remove", ["job", "remove", *words], curl(f"{url}/jobs/{number}", "DELETE")),
    ]
    return {"job": job, "lonely": lonely, "suspended": suspended, "at": at, "same": lines}


def _waits_for(topic: Document, job: Document) -> bool:
    """Return whether nobody who lives has a consumer for a job."""
    if topic["topic"] != job["topic"]:
        return False
    if job["only_on"] is None:
        return topic["unconsumed_since"] is not None
    return any(one["only_on"] == job["only_on"] for one in topic["unconsumed_on"])


def _same(url: str, requested: Search) -> list[Same]:
    words = [f"--{name}={getattr(requested, name)}" for name in ("topic", "queue", "id")]
    words = [one for one in words if not one.endswith("=")]
    words += [f"--where={one}" for one in requested.conditions()]
    if requested.state not in ("", "ALL"):
        words = [f"--state={requested.state.lower()}", *words]
    path = with_query("/jobs", **requested.query(limit=_ROWS))
    queues = f"{url}/job-queues"
    return [
        same("These jobs", ["get", "jobs", *words, "--server", url], curl(url + path)),
        same("The queues", ["get", "job-queues", "--server", url], curl(queues)),
        same(
            "Suspend a queue",
            ["suspend", "job-queue", "--server", url, "NAME"],
            curl(f"{queues}/NAME/suspend", "POST"),
        ),
    ]
