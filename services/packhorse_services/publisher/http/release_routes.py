"""Releases: sets of paths that go out together, at a moment or when somebody says so."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from packhorse.runtime import audit, tracing
from packhorse.runtime.idempotency_key import IdempotencyKey
from packhorse.runtime.openapi import LOCATION
from packhorse.runtime.paging import foreign_cursor, link_to, page_url, read_cursor, write_cursor
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse.wire.messages import Action
from packhorse_services.publisher.http.collaborators import of
from packhorse_services.publisher.http.fields import Distributor, Reader
from packhorse_services.publisher.outbox.release_rows import Release
from packhorse_services.publisher.outbox.request import DistributionRequest
from packhorse_services.publisher.releases.contents import ReleaseChange
from packhorse_services.publisher.releases.schemas import (
    ReleaseBody,
    ReleaseDocument,
    ReleaseList,
    ReleasePatch,
    ReleaseStateName,
    release_document,
)

router = APIRouter(route_class=StrictRoute, tags=["releases"])

Named = Annotated[
    str,
    Path(
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Its id, or its name: then the open one, else the newest of that name",
    ),
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"(\d{1,18}) (release-[0-9a-f]{32})", re.ASCII)


@router.post(
    "/releases",
    status_code=201,
    responses={201: LOCATION, **documented(400, 404, 409, 413, 415, 429, 503)},
)
async def create_release(
    request: Request,
    response: Response,
    body: ReleaseBody,
    caller: Distributor,
    idempotency_key: IdempotencyKey = None,
) -> ReleaseDocument:
    """Plan a release: a set of paths that goes out together, in one package or not at all."""
    requested = DistributionRequest(
        action=Action(body.action),
        paths=tuple(dict.fromkeys(body.paths)),
        deep_paths=tuple(dict.fromkeys(body.deep_paths)),
        targets=tuple(dict.fromkeys(body.targets)),
        caller=caller.name,
        roots=caller.roots,
        idempotency_key=idempotency_key,
        traceparent=tracing.traceparent(),
    )
    releases = of(request).releases
    release, _ = await asyncio.to_thread(releases.give, requested, body.at, body.name)
    _note(request, release)
    response.headers["Location"] = f"/releases/{release.release_id}"
    return release_document(release)


@router.get("/releases", responses=documented(503))
async def list_releases(
    request: Request,
    response: Response,
    _caller: Reader,
    state: Annotated[ReleaseStateName | None, Query(description="In this state now")] = None,
    *,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> ReleaseList:
    """List releases by their moments, those without one last; ended ones for 30 days."""
    publisher, above = of(request), _place_of(cursor)
    found = await asyncio.to_thread(publisher.releases.page, state, above, limit + 1)
    following = None
    if len(found) > limit:
        place = _cursor_of(found[limit - 1])
        following = page_url("/releases", state=state, limit=limit, cursor=place)
    response.headers.update(link_to(following))
    shown = [release_document(one) for one in found[:limit]]
    return ReleaseList(agent=publisher.agent, releases=shown, next=following)


@router.get("/releases/{release}", responses=documented(404, 503))
async def get_release(request: Request, release: Named, _caller: Reader) -> ReleaseDocument:
    """Return a release."""
    releases = of(request).releases
    return release_document(await asyncio.to_thread(releases.find, release))


@router.patch("/releases/{release}", responses=documented(400, 404, 409, 413, 415, 503))
async def change_release(
    request: Request, release: Named, body: ReleasePatch, caller: Distributor
) -> ReleaseDocument:
    """Change when a release goes out, or what is in it, before it does.

    With `{"at": "now"}` it goes out at once. Safe to repeat.
    """
    change = ReleaseChange(
        caller=caller.name,
        roots=caller.roots,
        moment=body.at,
        moves="at" in body.model_fields_set,
        paths=body.add_paths,
        deep_paths=body.add_deep_paths,
        without=body.remove_paths,
        targets=body.targets,
    )
    releases = of(request).releases
    changed = await asyncio.to_thread(releases.change, release, change)
    _note(request, changed)
    return release_document(changed)


@router.delete("/releases/{release}", responses=documented(404, 409, 503))
async def cancel_release(request: Request, release: Named, caller: Distributor) -> ReleaseDocument:
    """Cancel a release that is not sent; one that is cancelled stays so."""
    releases = of(request).releases
    cancelled = await asyncio.to_thread(releases.cancel, release, caller.roots)
    _note(request, cancelled)
    return release_document(cancelled)


def _note(request: Request, release: Release) -> None:
    paths = (*release.paths, *release.deep_paths)
    audit.note(
        request,
        release=release.release_id,
        action=release.action,
        paths=len(paths),
        first_path=next(iter(paths), None),
        targets=", ".join(release.targets),
        at=release.fires_at.isoformat() if release.fires_at else None,
    )


def _cursor_of(last: Release) -> str:
    moment = ((last.fires_at or _LATEST) - _EPOCH) // _MICROSECOND
    return write_cursor(f"{moment} {last.release_id}")


def _place_of(cursor: str | None) -> tuple[datetime, str] | None:
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(read_cursor(cursor))
    if found is None or int(found[1]) > (_LATEST - _EPOCH) // _MICROSECOND:
        raise foreign_cursor()
    return _EPOCH + int(found[1]) * _MICROSECOND, found[2]
