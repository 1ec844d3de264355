"""Error queues over HTTP: what a subscriber gave up on, and distributing it again (R18)."""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field

from packhorse.runtime.idempotency_key import IdempotencyKey
from packhorse.runtime.moments import time_of
from packhorse.runtime.paging import foreign_cursor, link_to, page_url, read_cursor, write_cursor
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.publisher.distributions.schemas import DistributionAccepted
from packhorse_services.publisher.http.collaborators import of
from packhorse_services.publisher.http.fields import Distributor, Reader, SubscriberName
from packhorse_services.publisher.http.redistribution import Redistribution
from packhorse_services.publisher.http.submission import (
    ACCEPTED_HEADERS,
    Prefer,
    answer,
    wanted_wait,
)
from packhorse_services.publisher.outcomes.error_queue import (
    ErrorPage,
    ErrorQueuePlace,
    FailedPackage,
)
from packhorse_services.publisher.queues.schemas import queue_url

router = APIRouter(route_class=StrictRoute, tags=["error queues"])

MAX_PAGE = 1_000
_BIG = 2**63 - 1
_PLACE = re.compile(r"e([0-9]{1,18})\.([0-9]{1,19})\.([^\0]{0,200})", re.DOTALL)

Again = Annotated[
    bool, Query(description="Also when the entry was distributed again before; else 409")
]


class FailedDocument(BaseModel):
    """A package that the subscriber gave up on."""

    package_id: str
    offset: int
    action: str | None = Field(description="Null when it is not known any more")
    paths: list[str]
    deep_paths: list[str]
    user: str
    attempts: int
    reason: str
    time: datetime | None = Field(description="When the subscriber gave it up")
    redistributed_as: str | None = Field(
        description="The distribution that carries the same paths again"
    )


class ErrorQueueDocument(BaseModel):
    """A subscriber's error queue, oldest first."""

    subscriber: str
    length: int
    entries: list[FailedDocument] = Field(
        description="Fewer than the limit when they are large, and yet not the last"
    )
    next: str | None = Field(description="URL of the next page, or null at the end")


@router.get(
    "/queues/{subscriber}/errors",
    responses=documented(404, 503),
    response_model=ErrorQueueDocument,
)
async def get_error_queue(
    request: Request,
    subscriber: SubscriberName,
    _caller: Reader,
    *,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=1_200)] = None,
) -> Response:
    """Return the packages that a subscriber gave up on, oldest first; each is kept for 30 days."""
    publisher = of(request)
    place = _read_place(cursor)
    length = await publisher.errors.count(subscriber)  # first: all that it counts can be paged
    page = await publisher.errors.page(subscriber, place, limit)
    if length == 0 and not page.found:
        publisher.queues.subscriber(subscriber)
    following = None
    if page.behind is not None:
        path = f"{queue_url(subscriber)}/errors"
        following = page_url(path, cursor=_write_place(page.behind), limit=limit)
    body = await asyncio.to_thread(_written, subscriber, length, page, following)
    return Response(body, headers=link_to(following), media_type="application/json")


def _written(subscriber: str, length: int, page: ErrorPage, following: str | None) -> str:
    """Return the page as JSON; thousands of paths take their time."""
    return ErrorQueueDocument(
        subscriber=subscriber,
        length=length,
        entries=[_failed(failed) for failed in page.found],
        next=following,
    ).model_dump_json()


def _failed(failed: FailedPackage) -> FailedDocument:
    package = failed.package
    return FailedDocument(
        package_id=failed.package_id or (package.package_id if package else ""),
        offset=failed.offset,
        action=package.action.value if package else None,
        paths=list(package.paths) if package else [],
        deep_paths=list(package.deep_paths) if package else [],
        user=package.user if package else "",
        attempts=failed.attempts,
        reason=failed.reason,
        time=time_of(int(failed.decided_at.timestamp() * 1000)),
        redistributed_as=failed.redistributed_as or None,
    )


@dataclass(frozen=True)
class _SubmissionHeaders:
    prefer: str | None
    idempotency_key: str | None


async def _submission_headers(
    prefer: Prefer = None, idempotency_key: IdempotencyKey = None
) -> _SubmissionHeaders:
    return _SubmissionHeaders(prefer, idempotency_key)


@router.post(
    "/queues/{subscriber}/errors/{offset}/redistribute",
    status_code=202,
    responses={
        202: {
            "description": "Accepted: a new package with the same paths will be distributed",
            "headers": ACCEPTED_HEADERS,
        },
        **documented(404, 409, 429, 503),
    },
    response_model=DistributionAccepted,
)
async def redistribute(
    request: Request,
    subscriber: SubscriberName,
    offset: Annotated[int, Path(ge=0, le=_BIG)],
    caller: Distributor,
    headers: Annotated[_SubmissionHeaders, Depends(_submission_headers)],
    *,
    again: Again = False,
) -> Response:
    """Distribute what a subscriber gave up on again: a new request of the same paths.

    It goes to whom the package was for.

    The package carries what the author has now; the old one is never sent again. A DELETE of a
    path that the author has again is refused with 409: distribute what is there instead.
    """
    publisher = of(request)
    failed = await publisher.errors.find(subscriber, offset, publisher.queues.feed.known_identity())
    wait = wanted_wait(headers.prefer)
    requested = Redistribution(publisher, subscriber, caller, again, awaited=wait is not None)
    accepted = await requested.of(failed, headers.idempotency_key)
    return await answer(request, accepted, wait)


def _write_place(place: ErrorQueuePlace) -> str:
    return write_cursor(f"e{place.recorded_us}.{place.offset}.{place.journal_id}")


def _read_place(cursor: str | None) -> ErrorQueuePlace:
    """Return where a page begins. Raises `Problem` 422."""
    if cursor is None:
        return ErrorQueuePlace()
    found = _PLACE.fullmatch(read_cursor(cursor))
    if found is None or int(found[2]) > _BIG:
        raise foreign_cursor()
    return ErrorQueuePlace(int(found[1]), int(found[2]), found[3])
