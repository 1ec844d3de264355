"""Reading content over HTTP, at the author and at subscribers alike.

A URL is the name of a view followed by the node's path: `/content` + `/site/home` is the node,
`/children` + … what lies directly below it, `/binaries` + … one of its binaries.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from packhorse.content.node import ROOT, check_path
from packhorse.content.queries import (
    MAX_CHILDREN,
    Pool,
    list_children,
    read_binary,
    read_document,
    reading,
)
from packhorse.content.requests import ReadablePath
from packhorse.content.schemas import NodeDocument
from packhorse.runtime.entity_tags import ANY_PART, KnownTags, kept
from packhorse.runtime.http import add_routes
from packhorse.runtime.openapi import BYTES
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute

ServeBinary = Callable[[Request, str, str], Awaitable[Response]]
"""Answers with the binary of a SHA-256, under a media type."""

_router = APIRouter(route_class=StrictRoute, tags=["content"])


class ListingPage(BaseModel):
    """Which part of a listing is wanted."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(default=None, max_length=2048, description="Go on behind this name")
    limit: int = Field(default=100, ge=1, le=MAX_CHILDREN)


class Listed(BaseModel):
    """A child in a listing."""

    path: str
    type: str


class Listing(BaseModel):
    """Children of a node, in the order of their names by bytes."""

    children: list[Listed]
    next: str | None = Field(description="URL of the next page, or null at the end")


def mount(app: FastAPI, pool: Pool, serve_binary: ServeBinary) -> None:
    """Add the routes that read content; a method that writes is answered 405 without others."""
    app.state.content_pool = pool
    app.state.serve_binary = serve_binary
    add_routes(app, _router)


@_router.get(
    "/content/{path:path}",
    responses={
        200: {"model": NodeDocument},
        304: {"description": "Unchanged since the ETag that was sent"},
        **documented(404, 503),
    },
    response_class=Response,
)
async def get_node(request: Request, path: ReadablePath, known: KnownTags) -> Response:
    """Return a node with its properties and binaries; its ETag is a digest of them."""
    async with reading(request.app.state.content_pool) as conn:
        document = await read_document(conn, path)
    if document is None:
        raise missing(path)
    headers = kept(document.digest)
    if document.digest in known:
        return Response(status_code=304, headers=headers)
    return Response(document.body, headers=headers, media_type="application/json")


@_router.get("/children/{path:path}", responses=documented(404, 503))
async def list_node_children(
    request: Request,
    response: Response,
    path: ReadablePath,
    page: Annotated[ListingPage, Query()],
) -> Listing:
    """List what lies directly below a node, page after page."""
    if page.after is not None:
        _check_name(page.after)
    async with reading(request.app.state.content_pool) as conn:
        found = await list_children(conn, path, after=page.after, limit=page.limit + 1)
    if found is None:
        raise missing(path)
    children = [Listed(path=child.path, type=child.type) for child in found[: page.limit]]
    if len(found) <= page.limit:
        return Listing(children=children, next=None)
    last = children[-1].path.rpartition("/")[2]
    following = page_url(f"/children{quote(path)}", after=last, limit=page.limit)
    response.headers.update(link_to(following))
    return Listing(children=children, next=following)


@_router.get(
    "/binaries/{path:path}",
    dependencies=[ANY_PART],
    responses={
        200: {"description": "The bytes", "content": {"*/*": BYTES}},
        206: {"description": "The wanted range of them"},
        304: {"description": "The client has them already"},
        **documented(404, 416, 503),
    },
    response_class=Response,
)
async def get_node_binary(
    request: Request,
    path: ReadablePath,
    name: Annotated[str, Query(max_length=255)] = "data",
) -> Response:
    """Stream a binary of a node under its own media type."""
    async with reading(request.app.state.content_pool) as conn:
        binary = await read_binary(conn, path, name)
    if binary is None:
        raise Problem(404, detail=f"there is no node at {path!r} with a binary {name[:80]!r}")
    serve: ServeBinary = request.app.state.serve_binary
    return await serve(request, binary.sha256, binary.media_type)


def missing(path: str) -> Problem:
    """Return the problem of a node that is not there."""
    return Problem(404, detail=f"there is no node at {path!r}")


def _check_name(name: str) -> None:
    if "/" in name:
        raise Problem(422, detail="after is the name of a child, without a slash")
    check_path(ROOT + name)
