"""Distributing, asking what became of it, and listing it."""

import asyncio
import re
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field

from packhorse.messaging.numbered import Number
from packhorse.packages.build import PathMissing, PathPresent, PathRefused
from packhorse.runtime import audit, tracing
from packhorse.runtime.auth import Principal
from packhorse.runtime.idempotency_key import IdempotencyKey
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse.runtime.waiting import waited
from packhorse.wire.actions import exports
from packhorse.wire.messages import Action
from packhorse_services.publisher.distributions.distribution_list import (
    DistributionFilter,
    DistributionPage,
    read_place,
    write_place,
)
from packhorse_services.publisher.distributions.documents import (
    distribution_document,
    distribution_summary,
)
from packhorse_services.publisher.distributions.schemas import (
    ActionName,
    DistributeBody,
    DistributionAccepted,
    DistributionDocument,
    DistributionSummary,
    DryRunBody,
    DryRunReport,
    ProducerNumber,
    PublishBody,
    StateName,
    TargetSubscriber,
)
from packhorse_services.publisher.distributions.schemas import Path as ContentPath
from packhorse_services.publisher.http import later
from packhorse_services.publisher.http.collaborators import Collaborators, of
from packhorse_services.publisher.http.fields import Distributor, Reader
from packhorse_services.publisher.http.submission import (
    ACCEPTED_HEADERS,
    MAX_WAIT_S,
    Prefer,
    answer,
    publish,
    wanted_wait,
)
from packhorse_services.publisher.outbox.request import DistributionRequest
from packhorse_services.publisher.outcomes.distribution_state import DistributionState

_AN_ID = re.compile("[0-9A-Za-z-]+")
PathAtFault = (PathMissing, PathPresent, PathRefused)
"""What names one of the paths that were asked for."""
_AT_FAULT = {
    PathMissing: (404, "", "missing at the author"),
    PathPresent: (409, "path-present", "there at the author"),
    PathRefused: (403, "", "outside the token's roots"),
}

router = APIRouter(route_class=StrictRoute, tags=["distributions"])


@router.post(
    "/distribute",
    status_code=202,
    responses={
        202: {
            "description": "Accepted: the package will be distributed",
            "headers": ACCEPTED_HEADERS,
        },
        **documented(400, 404, 409, 410, 413, 415, 429, 503),
    },
    response_model=DistributionAccepted,
)
async def distribute(
    request: Request,
    body: DistributeBody,
    caller: Distributor,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Distribute nodes to all subscribers: one package, however many there are.

    With `targets` it is for these alone, and the others pass it over.
    With `at` it goes out later, and is a release until then: `PATCH` and `DELETE /releases/{id}`
    change and cancel it.
    """
    publisher = of(request)
    wait = wanted_wait(prefer)
    requested = requested_of(publisher, body, caller, idempotency_key, awaited=wait is not None)
    _note(request, requested)
    if body.at is not None:
        return await later.plan(request, body, requested)
    try:
        accepted = await publish(publisher, requested)
    except PathAtFault as error:
        raise problem_of_path(body, error) from error
    return await answer(request, accepted, wait)


def requested_of(
    publisher: Collaborators,
    body: DryRunBody,
    caller: Principal,
    key: str | None = None,
    *,
    awaited: bool = False,
) -> DistributionRequest:
    """Return what a body asks for; `awaited` says that the caller waits for the subscribers.

    Raises `Problem`, and `BadProducerName`.
    """
    number = None
    if isinstance(body, PublishBody) and body.producer is not None:
        if key is not None:
            raise Problem(422, detail="send an Idempotency-Key or a producer, not both")
        number = _number_of(publisher, body.producer, caller)
    return DistributionRequest(
        action=Action(body.action),
        paths=tuple(body.paths),
        deep_paths=tuple(body.deep_paths),
        targets=tuple(dict.fromkeys(body.targets)),
        caller=caller.name,
        roots=caller.roots,
        idempotency_key=key,
        traceparent=tracing.traceparent(),
        producer=number,
        only_if_absent=isinstance(body, PublishBody) and body.only_if_absent,
        awaited=awaited,
    )


def _number_of(publisher: Collaborators, sent: ProducerNumber, caller: Principal) -> Number:
    source = publisher.producers.key(caller.name, sent.name).qualified
    return Number(source, sent.epoch, sent.sequence)


def _note(request: Request, requested: DistributionRequest) -> None:
    paths = (*requested.paths, *requested.deep_paths)
    audit.note(
        request,
        action=requested.action.value,
        paths=len(paths),
        first_path=next(iter(paths), None),
        targets=", ".join(requested.targets),
    )


@router.post("/distribute/dry-run", responses=documented(400, 404, 413, 415, 429, 503))
async def dry_run(request: Request, body: DryRunBody, caller: Distributor) -> DryRunReport:
    """Return what a request to distribute would publish; publish nothing."""
    publisher = of(request)
    requested = requested_of(publisher, body, caller)
    _note(request, requested)
    try:
        measured = await asyncio.to_thread(publisher.dry_runs.measure, requested)
    except PathAtFault as error:
        raise problem_of_path(body, error) from error
    queues = await publisher.queues.overview()
    kind: Literal["none", "inline", "reference"] = "none"
    if exports(requested.action):
        kind = "inline" if measured.inline else "reference"
    return DryRunReport(
        action=requested.action.value,
        nodes=measured.nodes,
        content_bytes=measured.content_bytes,
        body_bytes=measured.body_bytes,
        body=kind,
        subscribers=[
            TargetSubscriber(
                subscriber=queue.subscriber.name, state=queue.state.value, length=queue.length
            )
            for queue in queues
            if not requested.targets or queue.subscriber.name in requested.targets
        ],
    )


def problem_of_path(body: DryRunBody, error: PathMissing | PathPresent | PathRefused) -> Problem:
    """Return the problem that names the path at fault."""
    status, slug, short = next(what for kind, what in _AT_FAULT.items() if isinstance(error, kind))
    wrong = {"pointer": _pointer(body, error.path), "detail": short}
    return Problem(status, slug=slug, detail=str(error), errors=[wrong])


def _pointer(body: DryRunBody, path: str) -> str:
    for name, paths in (("paths", body.paths), ("deep_paths", body.deep_paths)):
        if path in paths:
            return f"#/{name}/{paths.index(path)}"
    return "#"


@router.get("/distributions/{distribution_id}", responses=documented(404, 503))
async def get_distribution(
    request: Request,
    _caller: Reader,
    distribution_id: Annotated[str, Path(max_length=200)],
    wait: Annotated[
        int,
        Query(
            ge=0,
            le=MAX_WAIT_S,
            description="Answer once all live subscribers are done with it, at most so many "
            "seconds later; earlier when the publisher ends",
        ),
    ] = 0,
) -> DistributionDocument:
    """Return a distribution with its state at each subscriber, as long as the journal keeps it."""
    publisher = of(request)
    found = None
    if _AN_ID.fullmatch(distribution_id):
        found = await publisher.distributions.find(distribution_id)
    if found is None and distribution_id.startswith("release-"):
        sending = partial(later.distribution_of, publisher, distribution_id, wait)
        document = await (waited(request, sending) if wait else sending())
        if document is not None:
            return document
    if found is None:
        raise Problem(404, detail="no such distribution, or the journal has forgotten it")
    if wait:
        found = await waited(request, partial(publisher.distributions.done, found, wait))
    state = await publisher.distributions.state(found)
    return distribution_document(found, state, await publisher.distributions.deliveries(found))


_MAX_PAGE = 1_000


class DistributionListDocument(BaseModel):
    """Distributions of a publisher agent, newest first."""

    agent: str
    distributions: list[DistributionSummary] = Field(
        description="A page may be short, with a filter even empty, and yet not the last: it has "
        "bounded bytes, and costs a bounded amount of looking"
    )
    next: str | None = Field(description="URL of the next page, or null at the end")


async def _distribution_filter(
    path_prefix: Annotated[
        ContentPath | None,
        Query(max_length=2048, description="With a path that is this one or lies below it"),
    ] = None,
    node: Annotated[
        ContentPath | None, Query(max_length=2048, description="That had it, named or below")
    ] = None,
    action: Annotated[ActionName | None, Query(description="Of this action")] = None,
    user: Annotated[str | None, Query(max_length=200, description="Asked for by this one")] = None,
    state: Annotated[StateName | None, Query(description="In this state now")] = None,
) -> DistributionFilter:
    return DistributionFilter(
        path_prefix, node, action and Action(action), user, state and DistributionState(state)
    )


@router.get("/distributions", responses=documented(503), response_model=DistributionListDocument)
async def list_distributions(
    request: Request,
    _caller: Reader,
    wanted: Annotated[DistributionFilter, Depends(_distribution_filter)],
    *,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """List what was distributed, newest first, as long as the journal keeps it."""
    publisher = of(request)
    page = await publisher.distribution_list.page(wanted, limit, read_place(cursor))
    following = None
    if page.behind is not None:
        requested = {
            "path_prefix": wanted.path_prefix,
            "node": wanted.node,
            "action": wanted.action and wanted.action.value,
            "user": wanted.user,
            "state": wanted.state and wanted.state.value,
        }
        place = write_place(page.behind)
        following = page_url("/distributions", cursor=place, limit=limit, **requested)
    body = await asyncio.to_thread(_written, publisher.agent, page, following)
    return Response(body, headers=link_to(following), media_type="application/json")


def _written(agent: str, page: DistributionPage, following: str | None) -> str:
    return DistributionListDocument(
        agent=agent,
        distributions=[distribution_summary(found, in_state) for found, in_state in page.found],
        next=following,
    ).model_dump_json()
