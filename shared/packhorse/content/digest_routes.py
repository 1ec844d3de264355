"""Digests of a subtree's nodes over HTTP, page after page: what a comparison reads."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, LiteralString
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from psycopg import AsyncConnection
from pydantic import BaseModel, Field

from packhorse.content.node import ROOT, check_path, is_within, subtree_range
from packhorse.content.property_names import as_matched, check_names
from packhorse.content.queries import reading
from packhorse.content.requests import ReadablePath
from packhorse.content.scan import LESS_BINARIES, LESS_PROPERTIES
from packhorse.runtime.http import add_routes
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute

MAX_DIGESTS = 5_000

_SELECT = (
    "SELECT path, left(content.digest(type, properties, binaries), 32), "
    "octet_length(properties::text) FROM content.node WHERE "
)
_TOP = "path = %(path)s"
_BELOW = "path > %(behind)s AND path < %(high)s AND path <= %(up_to)s ORDER BY path LIMIT %(limit)s"
_CURSOR = "DECLARE digests NO SCROLL CURSOR FOR "
_WHOLE, _LESS = "type, properties, binaries", f"type, {LESS_PROPERTIES}, {LESS_BINARIES}"
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
    add_routes(app, _router)


@dataclass(frozen=True, slots=True)
class DigestQuery:
    """Which digests of a subtree are wanted, and of what."""

    after: Annotated[str | None, Query(max_length=2048, description="Go on behind this")] = None
    up_to: Annotated[str | None, Query(max_length=2048, description="And end with this")] = None
    limit: Annotated[int, Query(ge=1, le=MAX_DIGESTS)] = 1_000
    without: Annotated[
        tuple[str, ...],
        Query(
            max_length=1_000,
            description="Names of properties that do not count; a `*` ends one for any rest",
        ),
    ] = ()

    def statement(self, condition: LiteralString) -> LiteralString:
        """Return the SQL that reads digests where a condition holds."""
        return (_SELECT.replace(_WHOLE, _LESS) if self.without else _SELECT) + condition

    def parameters(self, path: str, read: int) -> dict[str, Any]:
        """Return what the SQL calls the bounds, when some nodes are read already."""
        low, high = subtree_range(path)
        names, beginnings = as_matched(self.without)
        return {
            "path": path,
            "behind": low if self.after is None or self.after == path else self.after,
            "high": high,
            "up_to": self.up_to or high,
            "limit": self.limit + 1 - read,
            "names": names,
            "beginnings": beginnings,
        }


@_router.get("/digests/{path:path}", responses=documented(503))
async def list_digests(
    request: Request,
    response: Response,
    path: ReadablePath,
    wanted: Annotated[DigestQuery, Depends()],
) -> DigestPage:
    """List the digests of a node and all below it; nothing is there: an empty page.

    Each page is what is there at its time. It holds fewer nodes than `limit` where they are
    large, and the last one may be empty: the end is where `next` is null.
    """
    for bound in (wanted.after, wanted.up_to):
        if bound is not None and not is_within(check_path(bound), path):
            raise Problem(422, detail="after and up_to are paths in the subtree")
    check_names(wanted.without)
    async with reading(request.app.state.content_pool) as conn:
        found, more = await _read(conn, path, wanted)
    following = None
    if more:
        place = {**asdict(wanted), "after": found[-1][0]}
        following = page_url(f"/digests{quote(path)}", **place)
        response.headers.update(link_to(following))
    nodes = [NodeDigest(path=one, digest=digest) for one, digest in found]
    return DigestPage(nodes=nodes, next=following)


async def _read(
    conn: AsyncConnection, path: str, wanted: DigestQuery
) -> tuple[list[tuple[str, str]], bool]:
    """Return what a page holds, at least one node if there is one, and whether more may follow."""
    rows: list[_Row] = []
    if wanted.after is None and path != ROOT:
        top = await conn.execute(wanted.statement(_TOP), wanted.parameters(path, 0))
        rows += await top.fetchall()
    below = wanted.parameters(path, len(rows))
    await conn.execute(_CURSOR + wanted.statement(_BELOW), below, prepare=False)
    size = sum(row[2] for row in rows)
    while size < _PAGE_BYTES and (more := await (await conn.execute(_FETCH)).fetchall()):
        rows += more
        size += sum(row[2] for row in more)
    found = [(one, digest) for one, digest, _ in rows]
    return found[: wanted.limit], len(found) > wanted.limit or size >= _PAGE_BYTES
