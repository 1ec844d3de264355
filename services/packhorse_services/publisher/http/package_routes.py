"""Distributing a package whose body the caller has exported into the blob store (ADR 0018)."""

import asyncio
from dataclasses import replace
from typing import Self

from fastapi import APIRouter, Request, Response
from pydantic import Field, model_validator

from packhorse.content.node import InvalidPath
from packhorse.content.parts import SubtreePart
from packhorse.messaging.numbered import Number
from packhorse.packages.build import PathRefused
from packhorse.packages.limits import LIMITS
from packhorse.packages.scope import first_outside
from packhorse.runtime import tracing
from packhorse.runtime.auth import Principal
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse.wire.messages import Action
from packhorse_services.publisher.distributions.schemas import (
    MAX_SEQUENCE,
    DistributionAccepted,
    Path,
    ProducerNumber,
)
from packhorse_services.publisher.http.collaborators import Collaborators, of
from packhorse_services.publisher.http.fields import Distributor
from packhorse_services.publisher.http.submission import (
    ACCEPTED_HEADERS,
    Prefer,
    answer,
    publish,
    wanted_wait,
)
from packhorse_services.publisher.outbox.request import DistributionRequest, PreparedBody
from packhorse_services.publisher.publish.prepared import fault_of

router = APIRouter(route_class=StrictRoute, tags=["distributions"])


PACKAGE_ID = r"^dstrpck-[1-9][0-9]{0,14}-[0-9a-f]{16}$"
_ADVICE = "; name a path in the subtree, or leave it empty for an open end"


class SeenNumber(StrictBody):
    """What `bookkeeping.slot` shows in the snapshot that the body was exported from."""

    epoch: int = Field(ge=0, le=MAX_SEQUENCE)
    sequence: int = Field(ge=0, le=MAX_SEQUENCE)


class PreparedPackage(StrictBody):
    """An ADD of one deep path, or of a part of it, whose body is in the blob store."""

    deep_path: Path
    range_from: str = Field(
        default="",
        max_length=2048,
        description="The part begins with this path, compared by bytes; empty: with the deep path",
    )
    range_to: str = Field(
        default="",
        max_length=2048,
        description="The part ends before this path, compared by bytes; empty: with the subtree",
    )
    package_id: str = Field(pattern=PACKAGE_ID, description="Used for no other package")
    body_sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the body as stored")
    body_length: int = Field(ge=1, le=MAX_SEQUENCE, description="Bytes of the body as stored")
    content_length: int = Field(
        ge=0, le=LIMITS.content_bytes, description="Bytes of the body once decompressed"
    )
    node_count: int = Field(ge=0, le=LIMITS.nodes)
    seen: SeenNumber
    producer: ProducerNumber

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        try:
            SubtreePart.between(self.deep_path, self.range_from, self.range_to)
        except InvalidPath as error:
            raise ValueError(f"{error}{_ADVICE}") from error
        if not self.node_count and not (self.range_from or self.range_to):
            raise ValueError("a whole subtree holds a node; DELETE one that is gone")
        return self


@router.post(
    "/packages",
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
async def distribute_package(
    request: Request, body: PreparedPackage, caller: Distributor, prefer: Prefer = None
) -> Response:
    """Distribute a body that is in the blob store, unless a later package has the same paths.

    409 `stale-package` asks for another export, from a newer snapshot and under a new package id;
    the sequence is free then. A body may hold no nodes: the part is emptied.
    """
    outside = first_outside([body.deep_path], caller.roots)
    if outside is not None:
        wrong = {"pointer": "#/deep_path", "detail": "outside the token's roots"}
        raise Problem(403, detail=str(PathRefused(outside, caller.roots)), errors=[wrong])
    publisher, stored = of(request), _body(body)
    grace = publisher.orphan_grace
    fault = await asyncio.to_thread(fault_of, publisher.blobs, stored, grace)
    stored = replace(stored, fault=fault)
    wait = wanted_wait(prefer)
    requested = replace(_requested(publisher, body, stored, caller), awaited=wait is not None)
    accepted = await publish(publisher, requested)
    return await answer(request, accepted, wait)


def _body(body: PreparedPackage) -> PreparedBody:
    return PreparedBody(
        package_id=body.package_id,
        sha256=body.body_sha256,
        length=body.body_length,
        content_length=body.content_length,
        node_count=body.node_count,
        seen=(body.seen.epoch, body.seen.sequence),
        range_from=body.range_from,
        range_to=body.range_to,
    )


def _requested(
    publisher: Collaborators, body: PreparedPackage, stored: PreparedBody, caller: Principal
) -> DistributionRequest:
    source = publisher.producers.key(caller.name, body.producer.name).qualified
    return DistributionRequest(
        action=Action.ADD,
        paths=(),
        deep_paths=(body.deep_path,),
        caller=caller.name,
        roots=caller.roots,
        traceparent=tracing.traceparent(),
        producer=Number(source, body.producer.epoch, body.producer.sequence),
        prepared=stored,
    )
