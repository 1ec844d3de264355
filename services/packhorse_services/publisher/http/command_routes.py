"""Operating subscribers over HTTP: clear, pause, resume, stop, retry, reset, and their ends."""

import re
from dataclasses import asdict, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from packhorse.runtime.auth import Principal
from packhorse.runtime.openapi import LOCATION
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse.wire.messages import DesiredState
from packhorse_services.publisher.commands.command_rows import CommandQuery, StoredCommand
from packhorse_services.publisher.commands.issuing import UnknownCommand
from packhorse_services.publisher.commands.schemas import (
    ClearAccepted,
    ClearBody,
    ClearBound,
    CommandDocument,
    CommandList,
    OffsetBody,
    State,
    clear_accepted,
    clear_bound,
    command_document,
)
from packhorse_services.publisher.http.collaborators import of
from packhorse_services.publisher.http.fields import (
    Clearer,
    Operator,
    Reader,
    StorableName,
    SubscriberName,
)

router = APIRouter(route_class=StrictRoute, tags=["commands"])

MAX_PAGE = 1_000
_ALL = ClearBody()

_ID = r"^[0-9a-f]{32}$"
_CONTROLLED = {202: LOCATION, **documented(404, 503)}


@router.post(
    "/queues/{subscriber}/clear",
    status_code=202,
    responses={202: LOCATION, **documented(400, 404, 409, 412, 413, 415, 503)},
)
async def clear_queue(
    request: Request,
    response: Response,
    subscriber: SubscriberName,
    caller: Clearer,
    *,
    body: ClearBody = _ALL,
    if_match: Annotated[
        str | None,
        Header(max_length=200, description="The queue's ETag: clear what was seen, or 412"),
    ] = None,
) -> ClearAccepted:
    """Remove what an editable subscriber has still to import, up to an offset."""
    command, bound = await of(request).commands.clear(
        subscriber, up_to=body.up_to_offset, seen_tag=if_match, user=caller.name
    )
    _locate(response, command)
    return clear_accepted(command, bound)


@router.get("/queues/{subscriber}/clear", responses=documented(404, 409, 503))
async def count_clear(
    request: Request,
    subscriber: SubscriberName,
    _caller: Reader,
    up_to_offset: Annotated[int | None, Query(ge=-1, lt=2**63)] = None,
) -> ClearBound:
    """Say what clearing a queue up to an offset would remove now; without one, all of it."""
    commands = of(request).commands
    bound = await commands.bound(subscriber, up_to=up_to_offset)
    return clear_bound(commands.agent, subscriber, bound)


@router.put("/subscribers/{subscriber}/pause", status_code=202, responses=_CONTROLLED)
async def pause_subscriber(
    request: Request, response: Response, subscriber: SubscriberName, caller: Operator
) -> CommandDocument:
    """Let a subscriber import nothing until it is resumed; what it has begun it ends."""
    return await _control(request, response, subscriber, DesiredState.PAUSE, caller)


@router.put("/subscribers/{subscriber}/resume", status_code=202, responses=_CONTROLLED)
async def resume_subscriber(
    request: Request, response: Response, subscriber: SubscriberName, caller: Operator
) -> CommandDocument:
    """Let a subscriber that was paused or stopped go on; a package that failed is tried at once."""
    return await _control(request, response, subscriber, DesiredState.RUN, caller)


@router.put("/subscribers/{subscriber}/stop", status_code=202, responses=_CONTROLLED)
async def stop_subscriber(
    request: Request, response: Response, subscriber: SubscriberName, caller: Operator
) -> CommandDocument:
    """Let a subscriber import nothing and read nothing; only then its offset may be changed."""
    return await _control(request, response, subscriber, DesiredState.STOP, caller)


@router.post("/subscribers/{subscriber}/retry", status_code=202, responses=_CONTROLLED)
async def retry_subscriber(
    request: Request, response: Response, subscriber: SubscriberName, caller: Operator
) -> CommandDocument:
    """Let a subscriber try the package in front again at once; its back-off begins anew."""
    command = await of(request).commands.retry(subscriber, user=caller.name)
    _locate(response, command)
    return command_document(command)


@router.patch(
    "/subscribers/{subscriber}/offset",
    status_code=202,
    responses={202: LOCATION, **documented(400, 404, 409, 413, 415, 503)},
)
async def reset_offset(
    request: Request,
    response: Response,
    subscriber: SubscriberName,
    caller: Operator,
    body: OffsetBody,
) -> CommandDocument:
    """Move a stopped subscriber to another offset; it goes on there once it is resumed."""
    command = await of(request).commands.reset(subscriber, body.offset, user=caller.name)
    _locate(response, command)
    return command_document(command)


@router.delete("/subscribers/{subscriber}", status_code=204, responses=documented(404, 409, 503))
async def forget_subscriber(request: Request, subscriber: SubscriberName, caller: Operator) -> None:
    """Forget a subscriber that is gone for good; when it comes back it is simply known again.

    It leaves the lists, the queues and the gauges of this publisher agent, and what it did is kept.
    """
    await of(request).known_subscribers.forget(subscriber, user=caller.name)


async def _command_query(
    subscriber: Annotated[StorableName | None, Query(max_length=200)] = None,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(pattern=_ID)] = None,
) -> CommandQuery:
    return CommandQuery(subscriber, state, limit, cursor)


@router.get("/commands", responses=documented(404, 503))
async def list_commands(
    request: Request,
    response: Response,
    _caller: Reader,
    requested: Annotated[CommandQuery, Depends(_command_query)],
) -> CommandList:
    """List what operators did in the last 30 days, newest first."""
    commands, limit = of(request).commands, requested.limit
    if requested.subscriber is not None:
        await of(request).known_subscribers.check(requested.subscriber)
    found = await commands.page(replace(requested, limit=limit + 1))
    following = None
    if len(found) > limit:
        last = replace(requested, cursor=found[limit - 1].command_id)
        following = page_url("/commands", **asdict(last))
    response.headers.update(link_to(following))
    shown = [command_document(command) for command in found[:limit]]
    return CommandList(agent=commands.agent, commands=shown, next=following)


@router.get("/commands/{command_id}", responses=documented(404, 503))
async def get_command(
    request: Request, _caller: Reader, command_id: Annotated[str, Path(max_length=200)]
) -> CommandDocument:
    """Return one command, and what its subscriber made of it."""
    if not re.fullmatch(_ID, command_id):
        raise UnknownCommand("no command can have this id; `packhorse get commands` lists them")
    return command_document(await of(request).commands.find(command_id))


async def _control(
    request: Request,
    response: Response,
    subscriber: str,
    desired: DesiredState,
    caller: Principal,
) -> CommandDocument:
    command = await of(request).commands.control(subscriber, desired, user=caller.name)
    _locate(response, command)
    return command_document(command)


def _locate(response: Response, command: StoredCommand) -> None:
    response.headers["Location"] = f"/commands/{command.command_id}"
