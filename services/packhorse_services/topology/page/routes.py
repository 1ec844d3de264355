"""The topology page, and the part of it that the browser asks for again and again."""

import asyncio
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from packhorse.runtime.auth import Principal
from packhorse.runtime.pages.rendering import PREFIX, Pages
from packhorse.runtime.pages.session import visitor, visitor_or_sign_in
from packhorse.runtime.validation import StrictRoute
from packhorse_services.topology.http.parts import of
from packhorse_services.topology.page.shown import content

PAGES = Pages(Path(__file__).parent, f"{PREFIX}/topology")
router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)

Find = Annotated[str, Query(max_length=200)]


@router.get("/topology")
async def show_topology(
    request: Request,
    who: Annotated[Principal | Response, Depends(visitor_or_sign_in)],
    find: Find = "",
) -> Response:
    """Show clusters, instances, connectors, changes and votings."""
    if isinstance(who, Response):
        return who
    shown = await asyncio.to_thread(content, of(request), find)
    return PAGES.page("topology.html", shown=shown, find=find, who=who.name)


@router.get("/topology/content")
async def show_topology_content(
    request: Request, _who: Annotated[Principal, Depends(visitor)], find: Find = ""
) -> Response:
    """Return what changes of the page; 304 when nothing has."""
    shown = await asyncio.to_thread(content, of(request), find)
    return PAGES.part(request, "topology_content.html", shown=shown, find=find)
