"""Digests of a subtree's nodes over HTTP, page after page: what a comparison reads."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Query, Request, Response
from psycopg import AsyncConnection
from pydantic import BaseModel, Field

from packhorse.content.node import ROOT, check_path, is_within, subtree_range
from packhorse.content.queries import reading
from packhorse.content.requests import ReadablePath
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute

MAX_DIGESTS = 5_000

_SELECT = (
    "SELECT path, left(content.digest(type, properties, binaries), 32) FROM content.node WHERE "
)
_TOP = _SELECT + "path = %s"
_BELOW = _SELECT + "path > %s AND path < %s AND path <= %s ORDER BY path LIMIT %s"

_router = APIRouter(route_class=StrictRoute, tags=["content"])


class NodeDigest(BaseModel):
    """What two nodes share exactly when they are alike."""

    path: str
    digest: str = Field(description="Of type, properties and binaries; 32 hexadecimal digits")


class DigestPage(BaseModel):
    """Digests of a subtree: of its top, then of all below it in the order of their paths."""

    nodes: list[NodeDigest]
    next: str | None = Field(description="URL of the next page, or null at the end")


def mount(app: FastAPI) -> None:
    """Add the route; the pool is that of the other routes that read content."""
    app.include_router(_router)


@_router.get("/digests/{path:path}", responses=documented(503))
async def list_digests(
    request: Request,
    response: Response,
    path: ReadablePath,
    after: Annotated[str | None, Query(max_length=2048, description="Go on behind this")] = None,
    up_to: Annotated[str | None, Query(max_length=2048, description="And end with this")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_DIGESTS)] = 1_000,
) -> DigestPage:
    """List the digests of a node and all below it; nothing is there: an empty page.

    Each page is what is there at its time.
    """
    for bound in (after, up_to):
        if bound is not None and not is_within(check_path(bound), path):
            raise Problem(422, detail="after and up_to are paths in the subtree")
    async with reading(request.app.state.content_pool) as conn:
        found = await _read(conn, path, after, up_to, limit + 1)
    following = None
    if len(found) > limit:
        place = {"after": found[limit - 1][0], "up_to": up_to, "limit": limit}
        following = page_url(f"/digests{quote(path)}", **place)
        response.headers.update(link_to(following))
    nodes = [NodeDigest(path=one, digest=digest) for one, digest in found[:limit]]
    return DigestPage(nodes=nodes, next=following)


async def _read(
    conn: AsyncConnection, path: str, after: str | None, up_to: str | None, most: int
) -> list[tuple[str, str]]:
    low, high = subtree_range(path)
    found: list[tuple[str, str]] = []
    if after is None and path != ROOT:
        found += await (await conn.execute(_TOP, (path,))).fetchall()
    behind = low if after is None or after == path else after
    below = (behind, high, up_to or high, most - len(found))
    return found + await (await conn.execute(_BELOW, below)).fetchall()
