"""A jobs service put together: its parts, its HTTP service, and what makes it ready."""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter

from packhorse.bookkeeping.act_routes import act_router
from packhorse.db.pool import ask
from packhorse.jobs.content_changes.watches import InvalidWatch
from packhorse.jobs.job import JobLost, UnknownJob, WrongState
from packhorse.jobs.queue import QueueChanged, UnknownQueue
from packhorse.jobs.scheduling.errors import ScheduleChanged, ScheduleExists, UnknownSchedule
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.feed import StreamsEnded, TooManyStreams
from packhorse.runtime.http import Service, ServiceDescription, add_routes, create_app
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.problems import ProblemKind
from packhorse.runtime.readiness import Readiness
from packhorse_services.jobs.http import (
    change_routes,
    content_watch_routes,
    event_routes,
    job_routes,
    queue_routes,
    schedule_routes,
)
from packhorse_services.jobs.http.parts import JobsServices, of
from packhorse_services.jobs.http.request_keys import RequestKeyReused

DESCRIPTION = "Adds, shows, stops and retries jobs; their queues, schedules and events."
_PROBLEMS: Mapping[type[Exception], ProblemKind] = {
    InvalidWatch: ProblemKind(422, "invalid-watch", "That can't be watched"),
    UnknownJob: ProblemKind(404, "unknown-job", "There is no such job"),
    UnknownQueue: ProblemKind(404, "unknown-queue", "There is no such queue"),
    UnknownSchedule: ProblemKind(404, "unknown-schedule", "There is no such schedule"),
    WrongState: ProblemKind(409, "wrong-state", "The job's state does not allow that"),
    JobLost: ProblemKind(409, "wrong-state", "The job's state does not allow that"),
    QueueChanged: ProblemKind(412, "precondition-failed", "It has changed since you read it"),
    ScheduleChanged: ProblemKind(412, "precondition-failed", "It has changed since you read it"),
    ScheduleExists: ProblemKind(409, "schedule-exists", "There is a schedule of that name"),
    RequestKeyReused: ProblemKind(
        422, "key-reused", "The Idempotency-Key belongs to another request"
    ),
    TooManyStreams: ProblemKind(429, "too-many-streams", "As many follow the events as may", 10),
    StreamsEnded: ProblemKind(503, "streams-ended", "The service is about to end", 2),
}

_ROUTERS: Sequence[APIRouter] = (
    *(job_routes.router, change_routes.router, queue_routes.router, schedule_routes.router),
    *(event_routes.router, content_watch_routes.router),
)


_SERVICE = ServiceDescription(
    "packhorse jobs", DESCRIPTION, problems=_PROBLEMS, documentation=(f"{__package__}.http",)
)


def jobs_service(
    parts: JobsServices,
    authenticator: Authenticator,
    *,
    components: Sequence[Component] = (),
    docs: bool = False,
) -> Service:
    """Put a jobs service together; nothing connects before it is started.

    `components` are started before requests are taken, and stopped after the last.
    """
    ready = Readiness({"database": lambda: ask(parts.pool)})
    app = create_app(_SERVICE, authenticator, ready, docs=docs)
    app.state.stopping.then(parts.hub.end_streams)
    app.state.parts = parts
    add_routes(app, *_ROUTERS, act_router(lambda request, ask: of(request).ask(ask)))
    return Service(app, components)
