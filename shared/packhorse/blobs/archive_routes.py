"""Many small binaries with one request."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from packhorse.blobs.api import BlobCorrupt, BlobStore, binary_key
from packhorse.blobs.archives import MAX_BYTES, MAX_MEMBERS, MEDIA_TYPE, packed
from packhorse.blobs.digest import Verified
from packhorse.runtime.auth import require
from packhorse.runtime.http import add_routes
from packhorse.runtime.openapi import BYTES
from packhorse.runtime.places import Places, who
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictBody, StrictRoute

_MOST = 4
"""Archives at a time, until they are sent: each lies in memory. One caller may have half of them,
so that nobody waits for another one's (R33)."""
_THREADS = 8

_router = APIRouter(route_class=StrictRoute, tags=["blobs"])


class WantedBinaries(StrictBody):
    """Which binaries an archive is to hold."""

    digests: list[Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]] = Field(
        min_length=1, max_length=MAX_MEMBERS
    )


def mount(app: FastAPI) -> None:
    """Add the route; the store is that of the other routes that read binaries."""
    app.state.archives = Places("archives under way", _MOST, _MOST // 2)
    app.state.archive_threads = anyio.CapacityLimiter(_MOST)
    add_routes(app, _router)


@_router.post(
    "/blob-archives",
    dependencies=[Depends(require("content:read"))],
    responses={
        200: {
            "description": "A tar archive; its members are named by their digests",
            "content": {MEDIA_TYPE: BYTES},
        },
        **documented(400, 404, 413, 415, 429, 503),
    },
    response_class=Response,
)
async def read_blobs(request: Request, body: WantedBinaries) -> Response:
    """Return many small binaries, of 16 MiB together, as one tar archive."""
    wanted = list(dict.fromkeys(digest.removeprefix("sha256:") for digest in body.digests))
    state, place = request.app.state, ExitStack()
    place.enter_context(state.archives.taken(who(request.scope)))
    with place:
        content = await anyio.to_thread.run_sync(
            _archive, state.blobs, wanted, limiter=state.archive_threads
        )
        return _Sent(content, place.pop_all())


class _Sent(Response):
    """An archive whose place is given back once it is sent, or its client has gone."""

    def __init__(self, content: bytes, place: ExitStack) -> None:
        super().__init__(content, media_type=MEDIA_TYPE)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


def _archive(store: BlobStore, wanted: list[str]) -> bytes:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="archive") as workers:
        found = list(workers.map(lambda sha256: store.head(binary_key(sha256)), wanted))
        size = 0
        for sha256, one in zip(wanted, found, strict=True):
            if one is None:
                raise Problem(404, detail=f"the blob store has no binary sha256:{sha256}")
            size += one.length + 1024
        if size > MAX_BYTES:
            raise Problem(
                413, detail=f"an archive has at most {MAX_BYTES} bytes; ask for fewer, or one alone"
            )
        lengths = [one.length for one in found if one]
        contents = workers.map(lambda one: _read(store, *one), zip(wanted, lengths, strict=True))
        return packed(dict(zip(wanted, contents, strict=True)))


def _read(store: BlobStore, sha256: str, length: int) -> bytes:
    try:
        chunks = store.get(binary_key(sha256))
        return b"".join(Verified(chunks, sha256=sha256, length=length))
    except BlobCorrupt as error:
        raise Problem(500, detail=str(error)) from error
