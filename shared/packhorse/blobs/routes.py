"""Reading binaries over HTTP by their digest, at the author and at subscribers alike.

A digest is what opens a binary: who knows it has read a node that names it, so roots of the
caller are checked where nodes are read and not here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from packhorse.blobs.api import BlobStore, StoredBlob, binary_key
from packhorse.blobs.digest import Verified
from packhorse.runtime.auth import require
from packhorse.runtime.entity_tags import ANY_PART, EntityTags, kept
from packhorse.runtime.http import add_routes
from packhorse.runtime.openapi import BYTES
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class RangeNotSatisfiable(Exception):
    """The range begins behind the end."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """From `start` up to, not including, `end`."""

    start: int
    end: int


def parse_range(header: str | None, length: int) -> ByteRange | None:
    """Return the wanted part of `length` bytes, or None for the whole.

    Several ranges, other units and nonsense count as no range, as the RFC allows. Raises
    `RangeNotSatisfiable`.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, length - int(last)), length
    else:
        start, end = int(first), min(length, int(last) + 1) if last else length
        if last and int(last) < start:
            return None
    if start >= end:
        raise RangeNotSatisfiable
    return ByteRange(start, end)


_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_MEDIA_TYPE = rf"^{_NAME}/{_NAME}(; ?charset=[A-Za-z0-9-]{{1,32}})?$"
_UNKNOWN = "application/octet-stream"

Digest = Annotated[
    str,
    Path(
        pattern=r"^sha256:[0-9a-f]{64}$",
        description="`sha256:` and 64 lower-case hex digits",
    ),
]
MediaType = Annotated[
    str,
    Query(pattern=_MEDIA_TYPE, description="What the bytes are; they don't say it themselves"),
]

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes", "content": {"*/*": BYTES}},
    206: {"description": "The wanted range of them"},
    304: {"description": "The client has them already"},
    **documented(404, 416, 503),
}

_KEPT = "private, max-age=31536000, immutable"

_router = APIRouter(route_class=StrictRoute, tags=["blobs"])


def mount(app: FastAPI, store: BlobStore) -> None:
    """Add the routes that read binaries of `store`."""
    app.state.blobs = store
    add_routes(app, _router)


def blob_store(request: Request) -> BlobStore:
    """Return the store that was mounted; a dependency."""
    store: BlobStore = request.app.state.blobs
    return store


@_router.head(
    "/blobs/{digest}",
    dependencies=[Depends(require("content:read"))],
    responses={200: {"description": "It is there"}, **documented(404, 503)},
)
async def head_blob(request: Request, digest: Digest, media_type: MediaType = _UNKNOWN) -> Response:
    """Return whether a binary is there, and its length."""
    return await _serve_for_good(request, digest, media_type)


@_router.get(
    "/blobs/{digest}",
    dependencies=[Depends(require("content:read")), ANY_PART],
    responses=_RESPONSES,
    response_class=StreamingResponse,
)
async def get_blob(request: Request, digest: Digest, media_type: MediaType = _UNKNOWN) -> Response:
    """Stream a binary, or one range of it. It never changes, so caches may keep it."""
    return await _serve_for_good(request, digest, media_type)


async def _serve_for_good(request: Request, digest: str, media_type: str) -> Response:
    response = await serve_blob(request, digest.removeprefix("sha256:"), media_type)
    response.headers["Cache-Control"] = _KEPT
    return response


async def serve_blob(request: Request, sha256: str, media_type: str) -> Response:
    """Answer GET or HEAD with a binary of the mounted store, honouring Range and If-None-Match.

    The answer may be cached, but not used without asking: the URL may name another one tomorrow.

    Whoever receives the last byte of a whole binary has the right bytes: a wrong digest breaks
    the connection instead.
    """
    store = blob_store(request)
    found = await anyio.to_thread.run_sync(store.head, binary_key(sha256))
    if found is None:
        raise Problem(404, detail=f"the blob store has no binary sha256:{sha256}")
    headers = {
        **kept(f"sha256:{sha256}"),
        "Accept-Ranges": "bytes",
        "Content-Type": media_type if re.fullmatch(_MEDIA_TYPE, media_type) else _UNKNOWN,
    }
    known = EntityTags.parse(request.headers.get("if-none-match", ""), weak=True)
    if f"sha256:{sha256}" in known:
        return Response(status_code=304, headers=headers)
    part = _wanted(request, found.length, headers["ETag"])
    headers["Content-Length"] = str(part.end - part.start if part else found.length)
    if part:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{found.length}"
    if request.method == "HEAD":
        return Response(status_code=200, headers=headers)
    chunks = _chunks(store, found, sha256, part)
    return StreamingResponse(chunks, status_code=206 if part else 200, headers=headers)


def _chunks(
    store: BlobStore, found: StoredBlob, sha256: str, part: ByteRange | None
) -> Iterable[bytes]:
    if part:
        return store.get(found.key, start=part.start, end=part.end)
    return Verified(store.get(found.key), sha256=sha256, length=found.length)


def _wanted(request: Request, length: int, etag: str) -> ByteRange | None:
    if request.method == "HEAD" or request.headers.get("if-range", etag) != etag:
        return None
    try:
        return parse_range(request.headers.get("range"), length)
    except RangeNotSatisfiable:
        raise Problem(
            416,
            detail=f"the binary has {length} bytes",
            headers={"Content-Range": f"bytes */{length}"},
        ) from None
