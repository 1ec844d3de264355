"""Binaries into the blob store over HTTP: streamed, verified, never held whole."""

from collections.abc import AsyncIterator, Iterator

import anyio
import anyio.from_thread
import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel

from packhorse.blobs.api import BlobCorrupt, BlobStore, WrittenBlob, binary_key
from packhorse.blobs.routes import Digest
from packhorse.runtime.auth import require
from packhorse.runtime.http import add_routes
from packhorse.runtime.openapi import BYTES
from packhorse.runtime.places import Places, who
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.request_body import allow_body
from packhorse.runtime.validation import StrictRoute

_MAX_UPLOADS = 32
"""Uploads at a time; each holds a thread. One caller may have a quarter of them."""


class StoredBinary(BaseModel):
    """A binary in the blob store."""

    digest: str
    length: int


def mount(app: FastAPI, max_bytes: int) -> None:
    """Add the route that takes binaries of up to `max_bytes`."""
    router = APIRouter(route_class=StrictRoute, tags=["blobs"])
    router.add_api_route(
        "/blobs/{digest}",
        put_blob,
        methods=["PUT"],
        dependencies=[Depends(require("content:write")), Depends(allow_body(max_bytes))],
        responses={
            201: {"model": StoredBinary, "description": "Stored"},
            **documented(400, 408, 413, 429, 503),
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": BYTES},
            }
        },
    )
    app.state.uploads = Places("uploads under way", _MAX_UPLOADS, _MAX_UPLOADS // 4)
    app.state.upload_threads = anyio.CapacityLimiter(_MAX_UPLOADS)
    add_routes(app, router)


async def put_blob(request: Request, response: Response, digest: Digest) -> StoredBinary:
    """Store the request's body, as it is, under its SHA-256; 200 when it was there already."""
    store: BlobStore = request.app.state.blobs
    body = request.stream()

    def put() -> WrittenBlob:
        return store.put(binary_key(digest.removeprefix("sha256:")), _chunks(body))

    state = request.app.state
    try:
        with state.uploads.taken(who(request.scope)):
            written = await anyio.to_thread.run_sync(put, limiter=state.upload_threads)
    except BlobCorrupt as error:
        raise Problem(422, detail=f"the body is not what its digest says: {error}") from error
    response.status_code = 201 if written.created else 200
    return StoredBinary(digest=digest, length=written.length)


def _chunks(body: AsyncIterator[bytes]) -> Iterator[bytes]:
    """Take the chunks of the event loop's stream from the thread that writes them."""

    async def following() -> bytes | None:
        return await anext(body, None)

    while (chunk := anyio.from_thread.run(following)) is not None:
        if chunk:
            yield chunk
