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
    "SELECT path, left(content.digest(type, properties, binaries), 32), "
    "octet_length(properties::text) FROM content.node WHERE "
)
_TOP = _SELECT + "path = %s"
_BELOW = (
    "DECLARE digests NO SCROLL CURSOR FOR "
    + _SELECT
    + "path > %s AND path < %s AND path <= %s ORDER BY path LIMIT %s"
)
_FETCH = "FETCH FORWARD 50 FROM digests"
_PAGE_BYTES = 16 * 1024 * 1024
"""Of properties; a page ends with the fetch that reaches it, so that it takes seconds at most."""

_Row = tuple[str, str, int]

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

    Each page is what is there at its time. It holds fewer nodes than `limit` where they are
    large, and the last one may be empty: the end is where `next` is null.
    """
    for bound in (after, up_to):
        if bound is not None and not is_within(check_path(bound), path):
            raise Problem(422, detail="after and up_to are paths in the subtree")
    async with reading(request.app.state.content_pool) as conn:
        found, more = await _read(conn, path, after, up_to, limit)
    following = None
    if more:
        place = {"after": found[-1][0], "up_to": up_to, "limit": limit}
        following = page_url(f"/digests{quote(path)}", **place)
        response.headers.update(link_to(following))
    nodes = [NodeDigest(path=one, digest=digest) for one, digest in found]
    return DigestPage(nodes=nodes, next=following)


async def _read(
    conn: AsyncConnection, path: str, after: str | None, up_to: str | None, limit: int
) -> tuple[list[tuple[str, str]], bool]:
    """Return what a page holds, at least one node if there is one, and whether more may follow."""
    low, high = subtree_range(path)
    rows: list[_Row] = []
    if after is None and path != ROOT:
        rows += await (await conn.execute(_TOP, (path,))).fetchall()
    behind = low if after is None or after == path else after
    below = (behind, high, up_to or high, limit + 1 - len(rows))
    await conn.execute(_BELOW, below, prepare=False)
    size = sum(row[2] for row in rows)
    while size < _PAGE_BYTES and (more := await (await conn.execute(_FETCH)).fetchall()):
        rows += more
        size += sum(row[2] for row in more)
    found = [(one, digest) for one, digest, _ in rows]
    return found[:limit], len(found) > limit or size >= _PAGE_BYTES
