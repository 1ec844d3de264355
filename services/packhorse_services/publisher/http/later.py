"""Distributions that were asked for with a moment: answered before they are sent, and shown."""

import asyncio

from fastapi import Request, Response

from packhorse.runtime.problems import Problem
from packhorse_services.publisher.distributions.documents import distribution_document
from packhorse_services.publisher.distributions.schemas import (
    DistributeBody,
    DistributionAccepted,
    DistributionDocument,
    Links,
)
from packhorse_services.publisher.http.collaborators import Collaborators, of
from packhorse_services.publisher.outbox.release_rows import Release
from packhorse_services.publisher.outbox.request import DistributionRequest
from packhorse_services.publisher.releases.contents import UnknownRelease
from packhorse_services.publisher.releases.schemas import unsent_distribution

_LOOK_S = 0.5


async def plan(request: Request, body: DistributeBody, requested: DistributionRequest) -> Response:
    """Plan what a body with a moment asks for, and answer it.

    Raises `Problem` 422 for a producer's request: its numbers say an order, which a moment breaks.
    """
    if requested.producer is not None:
        raise Problem(422, detail="a request with `at` has an Idempotency-Key, not a producer")
    release, repeated = await asyncio.to_thread(of(request).releases.give, requested, body.at)
    location = f"/distributions/{release.release_id}"
    document = DistributionAccepted(
        id=release.release_id,
        package_id=release.package_id,
        state="ACCEPTED" if release.state == "SENT" else release.state,
        offset=None,
        repeated=repeated,
        links=Links(self=location),
    )
    return Response(document.model_dump_json(), 202, {"Location": location}, "application/json")


async def distribution_of(
    publisher: Collaborators, release_id: str, wait: float
) -> DistributionDocument | None:
    """Return what became of a release, `wait` seconds later unless everybody has it before.

    None when there is none, or the journal has forgotten its package.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + wait
    release = await _find(publisher, release_id)
    while release is not None and release.state == "SCHEDULED" and clock() < until:
        if publisher.distributions.ending:
            break
        await asyncio.sleep(min(_LOOK_S, max(0.0, until - clock())))
        release = await _find(publisher, release_id)
    if release is None or not release.package_id:
        return None if release is None else unsent_distribution(release)
    found = await publisher.distributions.find(release.package_id)
    if found is None:
        return None
    if wait:
        found = await publisher.distributions.done(found, max(0.0, until - clock()))
    state = await publisher.distributions.state(found)
    document = distribution_document(found, state, await publisher.distributions.deliveries(found))
    return document.model_copy(update={"id": release.release_id, "at": release.fires_at})


async def _find(publisher: Collaborators, release_id: str) -> Release | None:
    try:
        return await asyncio.to_thread(publisher.releases.find, release_id)
    except UnknownRelease:
        return None
