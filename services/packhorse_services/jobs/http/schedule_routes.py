"""Schedules over HTTP: list, look at, make, change, suspend, remove, and what came of each."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from psycopg import Connection

from packhorse.jobs.consumers import live_handled_topics
from packhorse.jobs.scheduling import store
from packhorse.jobs.scheduling.definition import Schedule, require_schedule
from packhorse.jobs.scheduling.errors import UnknownSchedule
from packhorse.jobs.scheduling.firing import Firer, fire_now
from packhorse.runtime.entity_tags import entity_tag
from packhorse.runtime.idempotency_key import IdempotencyKey
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http import request_keys
from packhorse_services.jobs.http.fields import (
    IfMatch,
    Limit,
    Operator,
    Reader,
    ScheduleName,
    require_may_define,
    require_may_give,
    require_may_remove,
)
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.http.schedule_schemas import (
    FireTimeDocument,
    FireTimeList,
    ScheduleBody,
    ScheduleDocument,
    ScheduleList,
    SchedulePatch,
    definition_of,
    patched,
    schedule_document,
)
from packhorse_services.jobs.http.tags import EntityVersion, PutIf, meant_version, replaced_version

router = APIRouter(route_class=StrictRoute, tags=["schedules"])

_CHANGED = documented(400, 404, 409, 412, 503)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = (datetime(9000, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND


@router.get("/schedules", responses=documented(503))
async def list_schedules(
    request: Request,
    response: Response,
    _caller: Reader,
    limit: Limit = 100,
    cursor: Annotated[
        str | None, Query(max_length=255, pattern=r"^[A-Za-z0-9_.-]+$", description="A name")
    ] = None,
) -> ScheduleList:
    """List schedules by name, with the next fire time of each."""
    found = await of(request).ask(
        lambda connection: store.list_schedules(connection, after=cursor or "", limit=limit + 1)
    )
    following = None
    if len(found) > limit:
        following = page_url("/schedules", limit=limit, cursor=found[limit - 1].name)
    response.headers.update(link_to(following))
    return ScheduleList(schedules=[schedule_document(one) for one in found[:limit]], next=following)


@router.get("/schedules/{name}", responses=documented(404, 503))
async def get_schedule(
    request: Request, response: Response, name: ScheduleName, _caller: Reader
) -> ScheduleDocument:
    """Return a schedule. Its ETag is that of the definition: firing does not change it."""
    found = await of(request).ask(lambda connection: store.get_schedule(connection, name))
    return _answer(response, found)


@router.put(
    "/schedules/{name}",
    responses={
        201: {"model": ScheduleDocument, "description": "It was made"},
        **documented(400, 409, 412, 413, 415, 503),
    },
)
async def put_schedule(
    request: Request,
    response: Response,
    name: ScheduleName,
    caller: Operator,
    body: ScheduleBody,
    condition: PutIf,
) -> ScheduleDocument:
    """Make a schedule, or change it; it is then planned anew.

    A program's own schedule that was changed is not changed back by the program. What one with a
    topic below packhorse/ does is changed, and such a one made, with the scope admin; when it does
    it with jobs:operate. A name that begins with packhorse. is given with the scope admin.
    """
    definition = require_schedule(definition_of(name, body))

    def put(connection: Connection) -> Schedule:
        found = _present(connection, name)
        require_may_define(caller, found, definition)
        present = None if found is None else _version_of(found)
        version = replaced_version("schedule", name, present, condition)
        if present is not None:
            return store.replace_schedule(connection, definition, version=version)
        response.status_code = 201
        return store.create_schedule(connection, definition, origin=caller.name.lstrip("@"))

    return _answer(response, await of(request).ask(put))


@router.patch("/schedules/{name}", responses=documented(400, 404, 409, 412, 413, 415, 503))
async def patch_schedule(
    request: Request,
    response: Response,
    name: ScheduleName,
    caller: Operator,
    body: SchedulePatch,
    *,
    if_match: IfMatch = None,
) -> ScheduleDocument:
    """Change members of a schedule, and nothing else of it (RFC 7396).

    Another cadence needs null for the present one: `{"cron": null, "period_s": 3600}`; a time_zone
    goes with its cron.
    """

    def change(connection: Connection) -> Schedule:
        version = _meant(connection, name, if_match)
        present = store.lock_schedule(connection, name, version)
        definition = patched(present, body)
        require_may_define(caller, present, definition)
        if definition == replace(present.definition, suspended=definition.suspended):
            return store.suspend_schedule(connection, name, suspended=definition.suspended)
        return store.replace_schedule(connection, require_schedule(definition))

    return _answer(response, await of(request).ask(change))


@router.post("/schedules/{name}/suspend", responses=_CHANGED)
async def suspend_schedule(
    request: Request,
    response: Response,
    name: ScheduleName,
    _caller: Operator,
    if_match: IfMatch = None,
) -> ScheduleDocument:
    """Let a schedule not fire, on any instance, until it is resumed."""
    return _answer(response, await _set(request, name, if_match, suspended=True))


@router.post("/schedules/{name}/resume", responses=_CHANGED)
async def resume_schedule(
    request: Request,
    response: Response,
    name: ScheduleName,
    _caller: Operator,
    if_match: IfMatch = None,
) -> ScheduleDocument:
    """Resume a suspended schedule at its next fire time."""
    return _answer(response, await _set(request, name, if_match, suspended=False))


@router.post("/schedules/{name}/fire", responses=documented(400, 404, 409, 410, 412, 503))
async def fire_schedule(
    request: Request,
    name: ScheduleName,
    caller: Operator,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> FireTimeDocument:
    """Fire a schedule now, suspended or not; when it fires by itself stays as it is.

    One that is not concurrent is SKIPPED while a job of it is not done. Sent again with its
    `Idempotency-Key` within a day it has no second effect. One with a topic below packhorse/ is
    fired with the scope admin.
    """
    parts = of(request)
    key = request_keys.request_key(caller.name, idempotency_key, f"POST /schedules/{name}/fire")

    def fire(connection: Connection) -> FireTimeDocument:
        if key is not None and (seen := request_keys.take(connection, key)) is not None:
            return _seen(connection, name, _moment(seen))
        present = store.get_schedule(connection, name)
        require_may_give(caller, present.definition.action.topic)
        version = meant_version(_version_of(present), if_match)
        firer = Firer(parts.discovery.instance_id, live_handled_topics(parts.discovery))
        fired = fire_now(connection, name, firer, version=version)
        if key is not None:
            request_keys.note(connection, key, _microsecond(fired.fire_time))
        return FireTimeDocument.model_validate(fired)

    return await parts.ask(fire)


@router.delete("/schedules/{name}", status_code=204, responses=_CHANGED)
async def remove_schedule(
    request: Request, name: ScheduleName, caller: Operator, if_match: IfMatch = None
) -> None:
    """Remove a schedule, and drop its jobs that wait; those that have begun go on.

    A program's own comes back when one starts: suspend it instead. One of the product's is removed
    with the scope admin.
    """

    def remove(connection: Connection) -> None:
        present = store.get_schedule(connection, name)
        require_may_remove(caller, present)
        version = meant_version(_version_of(present), if_match)
        store.remove_schedule(connection, name, version=version)

    await of(request).ask(remove)


@router.get("/schedules/{name}/fire-times", responses=documented(404, 503))
async def list_fire_times(
    request: Request,
    response: Response,
    name: ScheduleName,
    _caller: Reader,
    limit: Limit = 100,
    cursor: Annotated[int | None, Query(ge=0, le=_LATEST)] = None,
) -> FireTimeList:
    """List the fire times of a schedule and their outcomes, newest first."""
    before = None if cursor is None else _moment(cursor)

    def ask(connection: Connection) -> list[FireTimeDocument]:
        store.get_schedule(connection, name)
        found = store.list_fire_times(connection, name, before=before, limit=limit + 1)
        return [FireTimeDocument.model_validate(fire_time) for fire_time in found]

    found = await of(request).ask(ask)
    following = None
    if len(found) > limit:
        last = _microsecond(found[limit - 1].fire_time)
        following = page_url(f"/schedules/{name}/fire-times", limit=limit, cursor=last)
    response.headers.update(link_to(following))
    return FireTimeList(fire_times=found[:limit], next=following)


def _seen(connection: Connection, name: str, moment: datetime) -> FireTimeDocument:
    found = store.list_fire_times(connection, name, before=moment + _MICROSECOND, limit=1)
    if not found or found[0].fire_time != moment:
        raise Problem(410, detail=f"this request fired at {moment.isoformat()}, long forgotten")
    return FireTimeDocument.model_validate(found[0])


def _moment(microsecond: int) -> datetime:
    return _EPOCH + microsecond * _MICROSECOND


def _microsecond(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _answer(response: Response, schedule: Schedule) -> ScheduleDocument:
    response.headers["ETag"] = entity_tag(_version_of(schedule).tag)
    return schedule_document(schedule)


def _version_of(schedule: Schedule) -> EntityVersion:
    return EntityVersion(schedule.version, schedule.created_at)


def _present(connection: Connection, name: str) -> Schedule | None:
    try:
        return store.get_schedule(connection, name)
    except UnknownSchedule:
        return None


def _meant(connection: Connection, name: str, if_match: str | None) -> int | None:
    return meant_version(_version_of(store.get_schedule(connection, name)), if_match)


async def _set(request: Request, name: str, if_match: str | None, *, suspended: bool) -> Schedule:
    def change(connection: Connection) -> Schedule:
        version = _meant(connection, name, if_match)
        return store.suspend_schedule(connection, name, suspended=suspended, version=version)

    return await of(request).ask(change)
