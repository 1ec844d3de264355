"""A node's binary as a file to keep: of the author or of a subscriber, never shown by a browser."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Query, Response
from starlette.responses import StreamingResponse

from packhorse.client.exchange import Document
from packhorse.runtime.places import who
from packhorse.runtime.problems import Problem
from packhorse_services.console.explore.content import ContentAddress
from packhorse_services.console.frame.visit import PageVisit, Visit, page_router
from packhorse_services.console.parts import of

router = page_router()

_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class BinaryAddress(ContentAddress):
    """A binary of a node, by its name."""

    page = "content/binary"

    name: Annotated[str, Query(max_length=255)] = "data"

    @property
    def file_name(self) -> str:
        """What it is kept as: the node's name, or that of the binary where it has one."""
        name = self.path.rpartition("/")[2] if self.name == "data" else self.name
        return name.replace("/", "_").replace("\\", "_") or "data"


async def _answered(
    visit: PageVisit, requested: Annotated[BinaryAddress, Depends()]
) -> AsyncIterator[Response]:
    """Take a place, and give it back once all is sent. Raises `ClientError`, `Problem`."""
    if not visit.rights.read:
        raise Problem(403, detail="content needs a token with the scope content:read")
    with of(visit.request).downloads.taken(who(visit.request.scope)):
        yield await _file(visit, requested)


@router.get("/content/binary")
async def download(answer: Annotated[Response, Depends(_answered)]) -> Response:
    """Send a binary as the content service reads it, a part of 4 MiB at a time."""
    return answer


async def _file(visit: Visit, requested: BinaryAddress) -> Response:
    client = visit.content(requested.at)
    binaries: Document = (await client.node(requested.path))["binaries"]
    if requested.name not in binaries:
        raise Problem(404, detail=f"{requested.path} has no binary {requested.name!r} here")
    binary = binaries[requested.name]
    parts = client.read_blob(binary["digest"])
    first = await anext(parts, b"")  # what is refused is refused before anything is sent
    file_name = quote(requested.file_name, safe="", errors="replace")
    headers = {
        **_HEADERS,
        "Content-Disposition": f"attachment; filename*=UTF-8''{file_name}",
        "Content-Length": str(binary["length"]),
    }
    return StreamingResponse(
        _behind(first, parts), headers=headers, media_type="application/octet-stream"
    )


async def _behind(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part
