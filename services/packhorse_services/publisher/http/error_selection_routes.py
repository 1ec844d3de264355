"""Several entries of an error queue at once: distributed again, or dismissed (R18)."""

import asyncio
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, model_validator

from packhorse.errors import PackhorseError
from packhorse.runtime import audit
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse_services.publisher.http.collaborators import of
from packhorse_services.publisher.http.fields import Clearer, Distributor, SubscriberName
from packhorse_services.publisher.http.redistribution import AlreadyRedistributed, Redistribution
from packhorse_services.publisher.outcomes.error_queue import (
    ErrorQueueEntry,
    ErrorSelection,
    FailedPackage,
    NotInErrorQueue,
)

router = APIRouter(route_class=StrictRoute, tags=["error queues"])

MOST = 1_000
_AT_ONCE = 8
_BIG = 2**63 - 1

Offset = Annotated[int, Field(ge=0, le=_BIG)]


class EntriesBody(StrictBody):
    """Which entries: those that both say, where both are given."""

    offsets: list[Offset] | None = Field(default=None, min_length=1, max_length=MOST)
    reason: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="All whose reason contains this, in either case of letters",
    )

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if self.offsets is None and self.reason is None:
            raise ValueError("name offsets, a reason, or both: never all that is there")
        return self


class RedistributeBody(EntriesBody):
    """Which entries are distributed again."""

    again: bool = Field(
        default=False, description="Also those that were distributed again before; with `offsets`"
    )

    @model_validator(mode="after")
    def _names_what_goes_out_twice(self) -> Self:
        if self.again and self.offsets is None:
            raise ValueError("name the offsets of what is distributed again once more")
        return self


class RedistributedEntry(BaseModel):
    """What became of one entry."""

    offset: int
    state: Literal["REDISTRIBUTED", "ALREADY_REDISTRIBUTED", "REFUSED"]
    distribution_id: str | None = Field(description="What carries its paths again, now or before")
    reason: str = Field(description="Why it was refused")


class Redistributed(BaseModel):
    """What became of the entries, oldest first."""

    subscriber: str
    entries: list[RedistributedEntry]
    more: bool = Field(
        description=f"The reason is that of more than {MOST} entries: ask again. Those that stay "
        "REFUSED come each time: dismiss them, or name the offsets of others"
    )


class Dismissed(BaseModel):
    """Which entries are gone."""

    subscriber: str
    offsets: list[int]
    length: int = Field(description="Of the error queue, now")
    more: bool = Field(description=f"The reason is that of more than {MOST} entries: ask again")


@router.post(
    "/queues/{subscriber}/errors/redistribute",
    status_code=202,
    responses=documented(400, 404, 413, 415, 503),
)
async def redistribute_entries(
    request: Request, subscriber: SubscriberName, caller: Distributor, body: RedistributeBody
) -> Redistributed:
    """Distribute entries again, each as a new request of the same paths, to whom it was for.

    Those that can't be are named with the reason, and the others go out. An entry that was
    distributed again before is left alone and named with that distribution.
    """
    publisher = of(request)
    entries, more = await _selected(request, subscriber, body, waiting=body.offsets is None)
    requested = Redistribution(publisher, subscriber, caller, body.again)
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(entry: ErrorQueueEntry) -> RedistributedEntry:
        async with places:
            return await _redistributed(requested, entry)

    made = await asyncio.gather(*map(one, entries))
    audit.note(request, offsets=[one.offset for one in made if one.state == "REDISTRIBUTED"])
    return Redistributed(subscriber=subscriber, entries=made, more=more)


@router.post("/queues/{subscriber}/errors/dismiss", responses=documented(400, 404, 413, 415, 503))
async def dismiss_entries(
    request: Request, subscriber: SubscriberName, caller: Clearer, body: EntriesBody
) -> Dismissed:
    """Take entries off the error queue. What became of their packages stays known."""
    entries, more = await _selected(request, subscriber, body)
    errors = of(request).errors
    offsets = await errors.dismiss(subscriber, entries, caller.name)
    audit.note(request, offsets=offsets)
    length = await errors.count(subscriber)
    return Dismissed(subscriber=subscriber, offsets=list(offsets), length=length, more=more)


@router.delete(
    "/queues/{subscriber}/errors/{offset}", status_code=204, responses=documented(404, 503)
)
async def dismiss_entry(
    request: Request,
    subscriber: SubscriberName,
    offset: Annotated[int, Path(ge=0, le=_BIG)],
    caller: Clearer,
) -> None:
    """Take an entry off the error queue. What became of its package stays known."""
    publisher = of(request)
    found = await publisher.errors.find(subscriber, offset, publisher.queues.feed.known_identity())
    await publisher.errors.dismiss(subscriber, [_entry(found)], caller.name)


async def _selected(
    request: Request, subscriber: str, body: EntriesBody, *, waiting: bool = False
) -> tuple[list[ErrorQueueEntry], bool]:
    """Return the entries that a body means, and whether there are more.

    Raises `NotInErrorQueue` when one is named that is not there, with nothing done,
    `QueueLoading` when it can't be said which one an offset means, and `UnknownSubscriber` where
    there is no error queue.
    """
    publisher = of(request)
    if body.offsets is None and not await publisher.errors.count(subscriber):
        publisher.queues.subscriber(subscriber)
    wanted = ErrorSelection(body.offsets, body.reason, waiting)
    most = MOST + 1 if body.offsets is None else _BIG
    identity = "" if body.offsets is None else publisher.queues.feed.known_identity()
    found = list(await publisher.errors.select(subscriber, wanted, identity, most))
    if body.offsets is not None and body.reason is None:
        missing = sorted(set(body.offsets).difference(one.offset for one in found))
        if missing:
            raise NotInErrorQueue(
                f"{subscriber[:80]!r} has no package with offset {missing[0]} in its error queue, "
                f"and nothing was done; GET /queues/{subscriber[:80]}/errors lists what it has"
            )
    return found[:MOST], len(found) > MOST


async def _redistributed(requested: Redistribution, entry: ErrorQueueEntry) -> RedistributedEntry:
    try:
        errors = requested.publisher.errors
        accepted = await requested.of(
            await errors.find(requested.subscriber, entry.offset, entry.journal_id)
        )
    except AlreadyRedistributed as error:
        return _shown(entry, "ALREADY_REDISTRIBUTED", error.package_id)
    except PackhorseError as error:
        return _shown(entry, "REFUSED", None, str(error))
    state = "ALREADY_REDISTRIBUTED" if accepted.repeated else "REDISTRIBUTED"
    return _shown(entry, state, accepted.package_id)


def _shown(
    entry: ErrorQueueEntry, state: str, distribution_id: str | None, reason: str = ""
) -> RedistributedEntry:
    return RedistributedEntry.model_validate(
        {
            "offset": entry.offset,
            "state": state,
            "distribution_id": distribution_id,
            "reason": reason,
        }
    )


def _entry(found: FailedPackage) -> ErrorQueueEntry:
    return ErrorQueueEntry(found.journal_id, found.offset)
