"""What an operator does to a job, a queue of jobs or a schedule."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import Depends, Response

from packhorse.client.awaiting import AsyncClient
from packhorse.client.exchange import Request, requested, segment
from packhorse.runtime.auth import TokenScope
from packhorse_services.console.frame.session import Form
from packhorse_services.console.frame.visit import Visit, acting, back_to, page_router
from packhorse_services.console.work.jobs import Number
from packhorse_services.console.work.search import Search

router = page_router()

Operator = Annotated[Visit, Depends(acting(TokenScope.JOBS_OPERATE))]
Turn = Literal["suspend", "resume"]
_ONE: Mapping[str, Callable[[AsyncClient, int], Awaitable[Any]]] = {
    "retry": AsyncClient.retry_job,
    "stop": AsyncClient.stop_job,
    "remove": AsyncClient.remove_job,
}
_TURNS: Mapping[Turn, Callable[[AsyncClient, str, str], Awaitable[Any]]] = {
    "suspend": AsyncClient.suspend,
    "resume": AsyncClient.resume_suspended,
}


@router.post("/jobs/{number}/{action}")
async def change_job(
    visit: Operator, form: Form, number: Number, action: Literal["retry", "stop", "remove"]
) -> Response:
    """Retry, stop or remove a job, and show it again."""
    at = form.get("at", "")
    client, _ = visit.service("jobs", at)
    await _ONE[action](client, number)
    page = "jobs" if action == "remove" else f"jobs/{number}"
    return back_to(page, at=at, done=action)


@router.post("/job-queues/{name}/{turn}")
async def turn_queue(visit: Operator, form: Form, name: str, turn: Turn) -> Response:
    """Suspend or resume a queue, on all instances."""
    looked_for = Search.of(form)
    client, _ = visit.service("jobs", looked_for.at)
    await _TURNS[turn](client, "job-queues", name)
    return back_to("jobs", **looked_for.parameters)


@router.post("/schedules/{name}/fire")
async def fire_schedule(visit: Operator, form: Form, name: str) -> Response:
    """Fire a schedule now; a form does it once, however often it is sent."""
    at, key = form.get("at", ""), form.get("key", "")
    headers = {"Idempotency-Key": key or str(uuid4())}
    path = f"/schedules/{segment(name)}/fire"
    sent = Request("POST", path, "jobs", body={}, headers=headers, repeatable=True)
    client, _ = visit.service("jobs", at)
    await client.run(requested(sent))
    return back_to("schedule", at=at, name=name)


@router.post("/schedules/{name}/{turn}")
async def turn_schedule(visit: Operator, form: Form, name: str, turn: Turn) -> Response:
    """Suspend or resume a schedule, on all instances."""
    at, page = form.get("at", ""), form.get("back", "")
    client, _ = visit.service("jobs", at)
    await _TURNS[turn](client, "schedules", name)
    return back_to(page if page == "pipeline" else "schedules", at=at)
