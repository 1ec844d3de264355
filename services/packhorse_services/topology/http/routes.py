"""The topology over HTTP: clusters, instances, their properties, connectors and votings."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from packhorse.runtime.auth import Principal, TokenScope, require
from packhorse.runtime.entity_tags import KnownTags, tagged
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse.topology.properties import LARGEST_VALUE, LONGEST_NAME
from packhorse.topology.view import InstanceDescription
from packhorse_services.topology.http.parts import TopologyServices, Votings, of
from packhorse_services.topology.http.schemas import (
    ClusterViewDocument,
    ConnectorList,
    HistoryDocument,
    InstanceDocument,
    PropertyBody,
    PropertyDocument,
    TopologyDocument,
    VotingList,
    connector_document,
    instance_document,
    topology_document,
)

router = APIRouter(route_class=StrictRoute, prefix="/topology", tags=["topology"])

RESERVED = "packhorse."
"""What names of properties begin with that programs give themselves."""

Reader = Annotated[Principal, Depends(require(TokenScope.QUEUES_READ))]
Admin = Annotated[Principal, Depends(require(TokenScope.ADMIN))]
PropertyName = Annotated[
    str, Path(min_length=1, max_length=LONGEST_NAME, pattern=r"^[a-zA-Z0-9._-]+$")
]
_SELF = "self"


@router.get(
    "",
    responses={
        200: {"model": TopologyDocument},
        304: {"description": "Unchanged since the ETag that was sent"},
        **documented(503),
    },
    response_model=TopologyDocument,
)
async def get_topology(request: Request, _caller: Reader, known: KnownTags) -> Response:
    """Return all clusters with their instances, as this instance knows them."""
    discovery = of(request).discovery
    view, current = discovery.view(), discovery.is_current()
    document = topology_document(view, discovery.instance_id, current=current)
    return tagged(document.model_dump_json().encode(), known)


@router.get("/instances/{id}", responses=documented(404, 503))
async def get_instance(
    request: Request,
    identifier: Annotated[
        str, Path(alias="id", max_length=200, description="An instance's id, or self")
    ],
    _caller: Reader,
) -> InstanceDocument:
    """Return one instance of any cluster."""
    return instance_document(_instance(of(request), identifier))


@router.get("/cluster-view", responses=documented(404, 503))
async def get_cluster_view(request: Request, _caller: Reader) -> ClusterViewDocument:
    """Return the local cluster by its small numbers; only the store `lease` has them."""
    ask = of(request).cluster_view
    found = None if ask is None else await asyncio.to_thread(ask)
    if found is None:
        raise Problem(404, detail="there is no cluster view: none yet, or the store is voting")
    return found


@router.get("/history", responses=documented(503))
async def get_history(request: Request, _caller: Reader) -> HistoryDocument:
    """Return the last hundred changes that the instance which answers has heard of.

    Each has the time of hearing, and changes that follow each other at once may be one.
    """
    parts = of(request)
    return HistoryDocument(trouble=parts.discovery.trouble(), changes=parts.feed.history())


@router.put("/instances/self/properties/{name}", responses=documented(413, 503))
async def put_property(
    request: Request, name: PropertyName, body: PropertyBody, _caller: Admin
) -> PropertyDocument:
    """Announce a property of the instance that answers, for as long as it runs.

    Names that begin with `packhorse.` are the programs' own. All properties of an instance have
    64 KiB at most.
    """
    _refuse_reserved(name)
    if len(body.value.encode()) > LARGEST_VALUE:
        raise Problem(413, detail=f"a property's value has at most {LARGEST_VALUE} bytes of UTF-8")
    await asyncio.to_thread(of(request).note_act)
    of(request).discovery.set_property(name, body.value)
    return PropertyDocument(name=name, value=body.value)


@router.delete("/instances/self/properties/{name}", status_code=204, responses=documented(404, 503))
async def delete_property(request: Request, name: PropertyName, _caller: Admin) -> None:
    """Take back a property that was put; what a provider gives under the name comes back."""
    _refuse_reserved(name)
    discovery = of(request).discovery
    if discovery.was_set(name):
        await asyncio.to_thread(of(request).note_act)
        if discovery.remove_property(name):
            return
    raise Problem(404, detail=f"nobody has put the property {name} here")


@router.get("/connectors", responses=documented(503))
async def list_connectors(request: Request, _caller: Reader) -> ConnectorList:
    """List the connections to other clusters: state, next exchange, last error."""
    parts = of(request)
    states = await asyncio.to_thread(parts.connectors)
    now_ms = parts.clock.wall_ms()
    return ConnectorList(connectors=[connector_document(one, now_ms) for one in states])


@router.get("/votings", responses=documented(404, 503))
async def list_votings(request: Request, _caller: Reader) -> VotingList:
    """Return the votings under way; only the store `voting` has them."""
    return await asyncio.to_thread(_votings(request).votings)


@router.post("/votings", status_code=202, response_class=Response, responses=documented(404, 503))
async def start_voting(request: Request, _caller: Admin) -> None:
    """Begin a new voting with the next heartbeat, though the members are the same."""
    votings = _votings(request)
    await asyncio.to_thread(of(request).note_act)
    await asyncio.to_thread(votings.start_voting)


def _votings(request: Request) -> Votings:
    found = of(request).votings
    if found is None:
        raise Problem(
            404,
            detail="voting endpoints need the voting membership store; this cluster uses leases",
        )
    return found


def _instance(parts: TopologyServices, identifier: str) -> InstanceDescription:
    view = parts.discovery.view()
    wanted = parts.discovery.instance_id if identifier == _SELF else identifier
    found: Sequence[InstanceDescription] = ()
    if view is not None:
        found = list(view.find(lambda one: one.id == wanted))
    if not found:
        raise Problem(404, detail="there is no such instance in the last known topology")
    return found[0]


def _refuse_reserved(name: str) -> None:
    if name.startswith(RESERVED):
        wrong = {"pointer": "path/name", "detail": f"may not begin with {RESERVED}"}
        raise Problem(422, detail="such properties are the programs' own", errors=[wrong])
