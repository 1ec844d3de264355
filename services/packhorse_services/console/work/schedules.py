"""Schedules: when they are due and what they give then; and what came of each time of one."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Query, Response

from packhorse.client.exchange import Document, segment
from packhorse.jobs.scheduling.timing import Cron, times_after
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.visit import PageVisit, Visit, followed_page, page_router
from packhorse_services.console.work.jobs import At

router = page_router()

_MOST = 200
_FIRE_TIMES = 50
_COMING = 3
"""How many of the next times of a schedule are shown."""

Name = Annotated[str, Query(min_length=1, max_length=255)]


@followed_page(router, "/schedules")
async def show_schedules(visit: PageVisit, at: At = "") -> Response:
    """Show the schedules by name."""
    return visit.followed("schedules", **await _shown(visit, at), served=visit.served("jobs"))


@followed_page(router, "/schedule")
async def show_schedule(visit: PageVisit, name: Name, at: At = "") -> Response:
    """Show one schedule: its next times, and what came of those before."""
    return visit.followed("schedule", **await _one(visit, at, name), key=str(uuid4()))


async def _shown(visit: Visit, at: str) -> dict[str, Any]:
    client, url = visit.service("jobs", at)
    rows = await client.schedules(limit=_MOST)
    lines = [
        same("The schedules", ["get", "schedules", "--server", url], curl(f"{url}/schedules")),
        *_turns(url, "NAME"),
    ]
    return {"rows": rows, "most": _MOST, "at": at, "same": lines}


async def _one(visit: Visit, at: str, name: str) -> dict[str, Any]:
    client, url = visit.service("jobs", at)
    path = f"/schedules/{segment(name)}"
    schedule = await client.get(path, "jobs")
    times = await client.get(f"{path}/fire-times?limit={_FIRE_TIMES}", "jobs")
    lines = [
        Same("What came of it", "", curl(f"{url}{path}/fire-times")),
        Same("Fire now", "", curl(f"{url}{path}/fire", "POST")),
        *_turns(url, name),
    ]
    coming = [] if schedule["suspended"] else [*_coming(schedule)]
    rows = times["fire_times"]
    return {"schedule": schedule, "coming": coming, "rows": rows, "at": at, "same": lines}


def _turns(url: str, name: str) -> list[Same]:
    return [
        same(
            turn.capitalize(),
            [turn, "schedule", "--server", url, "--", name],
            curl(f"{url}/schedules/{segment(name)}/{turn}", "POST"),
        )
        for turn in ("suspend", "resume")
    ]


def _coming(schedule: Document) -> Iterator[str]:
    """Yield the next times of a schedule, as many as it has left, and at most three."""
    if schedule["next_fire_time"] is None:
        return
    first = datetime.fromisoformat(schedule["next_fire_time"])
    most = min(_COMING, schedule["times_left"] or _COMING)
    yield from (one.isoformat() for one in islice(_times(schedule, first), most))


def _times(schedule: Document, first: datetime) -> Iterator[datetime]:
    yield first
    if schedule["cron"]:
        yield from times_after(Cron(schedule["cron"], schedule["time_zone"]), first)
    elif schedule["period_s"]:
        yield from (first + timedelta(seconds=schedule["period_s"] * one) for one in count(1))
