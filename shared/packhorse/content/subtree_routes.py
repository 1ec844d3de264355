"""A subtree over HTTP, page after page: what an export reads."""

import json
from itertools import count
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Query, Request
from psycopg import AsyncConnection
from pydantic import BaseModel, Field
from starlette.responses import Response

from packhorse.content.node import ROOT, check_path, is_within, subtree_range
from packhorse.content.queries import reading
from packhorse.content.requests import ReadablePath
from packhorse.content.schemas import NodeDocument
from packhorse.runtime.http import add_routes
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute

MAX_NODES = 1_000
_PAGE_BYTES = 4 * 1024 * 1024
_FETCH_NODES = 50
"""Nodes may be a megabyte each."""

_SELECT = """
    SELECT path, jsonb_build_object(
        'path', path, 'type', type, 'properties', properties, 'binaries', binaries)::text
    FROM content.node
"""
_TOP = _SELECT + " WHERE path = %s"
_BELOW = _SELECT + " WHERE path > %s AND path < %s ORDER BY path LIMIT %s"

_cursor_numbers = count()
_router = APIRouter(route_class=StrictRoute, tags=["content"])


class SubtreePage(BaseModel):
    """Nodes of a subtree: its top, then all below it in the order of their paths by bytes."""

    nodes: list[NodeDocument] = Field(description="Fewer than wanted where they are large")
    next: str | None = Field(description="URL of the next page, or null at the end")


def mount(app: FastAPI) -> None:
    """Add the route; the pool is that of the other routes that read content."""
    add_routes(app, _router)


@_router.get(
    "/subtrees/{path:path}",
    responses={200: {"model": SubtreePage}, **documented(404, 503)},
    response_class=Response,
)
async def list_subtree(
    request: Request,
    path: ReadablePath,
    after: Annotated[str | None, Query(max_length=2048, description="Go on behind this")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_NODES)] = 100,
) -> Response:
    """List a node and all below it, page after page; each page is what is there at its time."""
    if after is not None and not is_within(check_path(after), path):
        raise Problem(422, detail="after is a path in the subtree")
    async with reading(request.app.state.content_pool) as conn:
        found = await _read(conn, path, after, limit + 1)
    if not found and after is None and path != ROOT:
        raise Problem(404, detail=f"there is nothing at {path!r}")
    return _page(path, found, limit)


async def _read(
    conn: AsyncConnection, path: str, after: str | None, most: int
) -> list[tuple[str, str]]:
    """Return up to `most` nodes behind `after`, and fewer where they are large."""
    low, high = subtree_range(path)
    found: list[tuple[str, str]] = []
    if after is None and path != ROOT:
        found += await (await conn.execute(_TOP, (path,))).fetchall()
    behind = low if after is None or after == path else after
    size = 0
    async with conn.cursor(name=f"packhorse_subtree_{next(_cursor_numbers)}") as cursor:
        await cursor.execute(_BELOW, (behind, high, most))
        while size <= _PAGE_BYTES and (rows := await cursor.fetchmany(_FETCH_NODES)):
            found += rows
            size += sum(len(document) for _, document in rows)
    return found[:most]


def _page(path: str, found: list[tuple[str, str]], limit: int) -> Response:
    size, following, shown = 0, None, found[:limit]
    for number, (_, document) in enumerate(shown, 1):
        size += len(document)
        if size > _PAGE_BYTES:
            shown = shown[: max(1, number - 1)]  # so one is left to show that there is more
            break
    if len(shown) < len(found):
        following = page_url(f"/subtrees{quote(path)}", after=shown[-1][0], limit=limit)
    nodes = ",".join(document for _, document in shown)
    body = f'{{"nodes":[{nodes}],"next":{json.dumps(following)}}}'
    return Response(body, headers=link_to(following), media_type="application/json")
