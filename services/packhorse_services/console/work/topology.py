"""Which programs live, in which clusters and in what order, and who leads."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Response

from packhorse.client.errors import NotFound
from packhorse.client.exchange import Document
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress
from packhorse_services.console.frame.visit import PageVisit, Visit, followed_page, page_router
from packhorse_services.console.upstream import each

router = page_router()

_PARTS = ("connectors", "history", "cluster-view", "votings")
_MOST_INSTANCES = 1_000
_MOST_CHANGES = 20


@dataclass(frozen=True)
class TopologyAddress(PageAddress):
    """Which topology service tells, and what its instances have to have in their texts."""

    page = "topology"

    at: Annotated[str, Query(max_length=255)] = ""
    find: Annotated[str, Query(max_length=200)] = ""


Requested = Annotated[TopologyAddress, Depends()]


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """A cluster with the instances that the filter lets through, each with its place."""

    id: str
    local: bool
    size: int
    instances: Sequence[tuple[int, Document]]


@dataclass(frozen=True, slots=True)
class TopologyShown:
    """The whole of it; `unavailable` names what could not be had."""

    view: Document
    clusters: Sequence[ShownCluster]
    left_out: int
    connectors: Sequence[Document]
    trouble: str
    changes: Sequence[Document]
    numbers: Document | None
    votings: Document | None
    unavailable: Sequence[str]
    same: Sequence[Same]


@followed_page(router, "/topology")
async def show_topology(visit: PageVisit, requested: Requested) -> Response:
    """Show clusters, instances, connectors, changes and votings."""
    shown = await _shown(visit, requested)
    served = visit.served("topology")
    return visit.followed("topology", shown=shown, requested=requested, served=served)


async def _shown(visit: Visit, requested: TopologyAddress) -> TopologyShown:
    client, url = visit.service("topology", requested.at)

    async def ask(part: str) -> Document | None:
        try:
            return Document(await client.get(f"/topology/{part}", "topology"))
        except NotFound:
            return None  # what the other store of members has

    view, parts = await asyncio.gather(client.topology(), each(_PARTS, ask))
    connectors, history, numbers, votings = (one.value for one in parts)
    shown, left_out = _clusters(view["clusters"], requested.find.casefold())
    return TopologyShown(
        view,
        shown,
        left_out,
        connectors["connectors"] if connectors else [],
        history["trouble"] if history else "",
        history["changes"][:_MOST_CHANGES] if history else [],
        numbers,
        votings,
        [one.name.replace("-", " ") for one in parts if one.error],
        _same(url),
    )


def _clusters(clusters: Sequence[Document], find: str) -> tuple[list[ShownCluster], int]:
    room, left_out, shown = _MOST_INSTANCES, 0, list[ShownCluster]()
    for one in clusters:
        instances = one["instances"]
        found = [row for row in enumerate(instances, 1) if _matches(row[1], find)]
        left_out += max(0, len(found) - room)
        shown.append(ShownCluster(one["id"], one["local"], len(instances), found[:room]))
        room -= len(shown[-1].instances)
    return shown, left_out


def _matches(instance: Document, find: str) -> bool:
    properties = instance["properties"]
    texts = (instance["id"], *properties.keys(), *properties.values())
    return not find or any(find in text.casefold() for text in texts)


def _same(url: str) -> list[Same]:
    return [
        same("The instances", ["get", "instances", "--server", url], curl(f"{url}/topology")),
        Same("The connectors", "", curl(f"{url}/topology/connectors")),
        same(
            "Follow changes",
            ["topology", "watch", "--server", url],
            curl(f"{url}/topology/events"),
        ),
    ]
