"""Distributing, and asking what became of it."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from packhorse.messaging.numbered import Number
from packhorse.packages.build import PathMissing, PathRefused
from packhorse.runtime import tracing
from packhorse.runtime.auth import Principal, Scope, require
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse.wire.messages import Action
from packhorse_services.publisher.collaborators import Collaborators, of
from packhorse_services.publisher.distribute import DistributionRequest
from packhorse_services.publisher.distribution_documents import distribution_document
from packhorse_services.publisher.schemas import (
    DistributeBody,
    DistributionAccepted,
    DistributionDocument,
    DryRunReport,
    TargetSubscriber,
)
from packhorse_services.publisher.submission import (
    ACCEPTED_HEADERS,
    MAX_WAIT_S,
    IdempotencyKey,
    Prefer,
    answer,
    publish,
    wanted_wait,
)

router = APIRouter(route_class=StrictRoute, tags=["distributions"])

Distributor = Annotated[Principal, Depends(require(Scope.DISTRIBUTE))]
Reader = Annotated[Principal, Depends(require(Scope.QUEUES_READ))]


@router.post(
    "/distribute",
    status_code=202,
    responses={
        200: {"model": DryRunReport, "description": "What `dry_run` found"},
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
    """Distribute nodes to all subscribers: one package, however many there are."""
    publisher = of(request)
    asked = _asked(publisher, body, caller, idempotency_key)
    try:
        if body.dry_run:
            return await _dry_run(publisher, asked)
        accepted = await publish(publisher, asked)
    except (PathMissing, PathRefused) as error:
        status = 404 if isinstance(error, PathMissing) else 403
        wrong = {"pointer": _pointer(body, error.path), "detail": str(error)}
        raise Problem(status, detail=str(error), errors=[wrong]) from error
    return await answer(publisher, accepted, wanted_wait(prefer))


def _asked(
    publisher: Collaborators, body: DistributeBody, caller: Principal, key: str | None
) -> DistributionRequest:
    number = None
    if body.producer is not None:
        if key is not None:
            raise Problem(422, detail="send an Idempotency-Key or a producer, not both")
        source = publisher.producers.qualified(caller.name, body.producer.name)
        number = Number(source, body.producer.epoch, body.producer.sequence)
    return DistributionRequest(
        action=Action(body.action),
        paths=tuple(body.paths),
        deep_paths=tuple(body.deep_paths),
        caller=caller.name,
        roots=caller.roots,
        idempotency_key=key,
        traceparent=tracing.inject().get(tracing.TRACEPARENT, b"").decode(),
        producer=number,
    )


async def _dry_run(publisher: Collaborators, asked: DistributionRequest) -> Response:
    measured = await asyncio.to_thread(publisher.dry_runs.measure, asked)
    queues = await publisher.queues.overview()
    kind = "none"
    if asked.action is Action.ADD:
        kind = "inline" if measured.inline else "reference"
    report = DryRunReport.model_validate(
        {
            "action": asked.action.value,
            "nodes": measured.nodes,
            "content_bytes": measured.content_bytes,
            "body_bytes": measured.body_bytes,
            "body": kind,
            "subscribers": [
                TargetSubscriber(
                    subscriber=queue.subscriber.name, state=queue.state.value, length=queue.length
                )
                for queue in queues
            ],
        }
    )
    return JSONResponse(report.model_dump(mode="json"))


def _pointer(body: DistributeBody, path: str) -> str:
    for name, paths in (("paths", body.paths), ("deep_paths", body.deep_paths)):
        if path in paths:
            return f"#/{name}/{paths.index(path)}"
    return "#"


@router.get("/distributions/{distribution_id}", responses=documented(404, 503))
async def get_distribution(
    request: Request,
    _caller: Reader,
    distribution_id: Annotated[str, Path(max_length=200, pattern=r"^[0-9A-Za-z-]+$")],
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
    """Return a distribution with its state at each subscriber, as long as the log keeps it."""
    publisher = of(request)
    found = await publisher.distributions.find(distribution_id)
    if found is None:
        raise Problem(404, detail="no such distribution, or the log has forgotten it")
    if wait:
        found = await publisher.distributions.done(found, wait)
    state = publisher.distributions.state(found.offset)
    return distribution_document(found, state, await publisher.distributions.deliveries(found))
