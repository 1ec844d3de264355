"""What an operator does with a page: every form is a POST from a page of ours, behind a token."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from psycopg import Connection
from starlette.responses import RedirectResponse

from packhorse.errors import Permanent
from packhorse.jobs.consumers import live_handled_topics
from packhorse.jobs.job import Job
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.scheduling.firing import Firer, fire_now
from packhorse.jobs.scheduling.store import get_schedule, suspend_schedule
from packhorse.runtime.auth import Principal, TokenScope
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.pages.session import Form, allowed
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http.fields import Number, QueueName, ScheduleName, require_may_fire
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.page.rendering import refused
from packhorse_services.jobs.page.search import parse_search

router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)


async def _operator(request: Request, _form: Form) -> Principal:
    return await allowed(request, TokenScope.JOBS_OPERATE)


Operator = Annotated[Principal, Depends(_operator)]
Turn = Literal["suspend", "resume"]

_ONE: Mapping[str, Callable[[Jobs, int], Job]] = {
    "retry": Jobs.retry,
    "stop": Jobs.stop,
    "remove": Jobs.remove,
}


@router.post("/jobs/{number:int}/{action}")
async def change_job(
    request: Request, number: Number, action: Literal["retry", "stop", "remove"], _who: Operator
) -> Response:
    """Retry, stop or remove a job, and show it again."""
    try:
        await asyncio.to_thread(_ONE[action], of(request).jobs, number)
    except Permanent as error:
        return refused(error)
    path = f"{PREFIX}/jobs" + ("" if action == "remove" else f"/{number}")
    return RedirectResponse(f"{path}?done={action}", 303)


@router.post("/job-queues/{name}/{turn}")
async def turn_queue(
    request: Request, name: QueueName, turn: Turn, form: Form, _who: Operator
) -> Response:
    """Suspend or resume a queue, on all instances."""
    jobs = of(request).jobs
    act = jobs.suspend_queue if turn == "suspend" else jobs.resume_queue
    try:
        await asyncio.to_thread(act, name)
    except Permanent as error:
        return refused(error)
    return _back(form)


@router.post("/schedules/{name}/fire")
async def fire_schedule(
    request: Request, name: ScheduleName, form: Form, who: Operator
) -> Response:
    """Fire a schedule now, as the API does."""
    discovery = of(request).discovery
    firer = Firer(discovery.instance_id, live_handled_topics(discovery))

    def fire(connection: Connection) -> None:
        require_may_fire(who, get_schedule(connection, name))
        fire_now(connection, name, firer)

    try:
        await of(request).ask(fire)
    except Permanent as error:
        return refused(error)
    return _back(form)


@router.post("/schedules/{name}/{turn}")
async def turn_schedule(
    request: Request, name: ScheduleName, turn: Turn, form: Form, _who: Operator
) -> Response:
    """Suspend or resume a schedule, on all instances."""
    suspended = turn == "suspend"
    try:
        await of(request).ask(lambda c: suspend_schedule(c, name, suspended=suspended))
    except Permanent as error:
        return refused(error)
    return _back(form)


def _back(form: Mapping[str, str]) -> Response:
    return RedirectResponse(f"{PREFIX}/jobs?{parse_search(form.get('back', '')).query()}", 303)
