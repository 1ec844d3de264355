"""Many files in one call: what an import over HTTP writes."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel, Field

from packhorse.blobs.api import BlobStore, StoredBlob, binary_key
from packhorse.blobs.archives import MAX_BYTES, MEDIA_TYPE, BadArchive, unpacked
from packhorse.content.node import ROOT, InvalidPath, check_path, is_within
from packhorse.content.queries import Pool
from packhorse.content.schemas import BinaryReference
from packhorse.runtime import audit
from packhorse.runtime.auth import Principal, require
from packhorse.runtime.http import add_routes
from packhorse.runtime.openapi import BYTES
from packhorse.runtime.places import Places, who
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.request_body import allow_body
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse_services.content.http import files
from packhorse_services.content.http.uploads import StoredBinary

MAX_FILES = 1_000
_MOST = 8
"""Archives that come in at a time: each lies in memory. One caller may send half of them, so that
nobody waits for another one's slow body (R33)."""
_THREADS = 8

_router = APIRouter(route_class=StrictRoute)

Writer = Annotated[Principal, Depends(require("content:write"))]


class FileBody(BinaryReference):
    """A file, whose bytes may be in the blob store already."""

    path: str


class FilesBody(StrictBody):
    """Files and folders to be."""

    files: list[FileBody] = Field(default_factory=list, max_length=MAX_FILES)
    folders: list[str] = Field(default_factory=list, max_length=MAX_FILES)


class FileOutcome(BaseModel):
    """What became of one file or folder."""

    path: str
    state: Literal["WRITTEN", "UNCHANGED", "MISSING", "REFUSED"] = Field(
        description="MISSING: put its bytes into the blob store, and send it again"
    )
    reason: str = ""


class FileOutcomes(BaseModel):
    """The outcomes: of the files in their order, then of the folders in theirs."""

    outcomes: list[FileOutcome]


class StoredBinaries(BaseModel):
    """What an archive has brought into the blob store."""

    binaries: list[StoredBinary]


def mount(app: FastAPI) -> None:
    """Add the routes."""
    app.state.incoming = Places("archives coming in", _MOST, _MOST // 2)
    app.state.incoming_threads = anyio.CapacityLimiter(_MOST)
    add_routes(app, _router)


@_router.post("/files", tags=["content"], responses=documented(400, 413, 415, 503))
async def put_files(request: Request, body: FilesBody, caller: Writer) -> FileOutcomes:
    """Write nodes of the type `file`, each with its bytes as the binary `data`, and folders.

    All in one transaction, save those that are missing or refused. Sending it again changes
    nothing. What else a file's node holds stays.
    """
    refused = {
        path: reason
        for path in (*(one.path for one in body.files), *body.folders)
        if (reason := _fault(path, caller))
    }
    given = {one.path: one for one in body.files if one.path not in refused}
    pool: Pool = request.app.state.content_pool
    changed = await files.changed(pool, given)
    wanted = {one.digest for path, one in given.items() if path in changed}
    renewed = await anyio.to_thread.run_sync(_renew, request.app.state.blobs, wanted)
    states = {
        path: _state(one, renewed[one.digest]) if path in changed else ("UNCHANGED", "")
        for path, one in given.items()
    }
    written = {p: changed[p] for p, (state, _) in states.items() if state == "WRITTEN"}
    folders = [one for one in body.folders if one not in refused]
    first = next(iter([*written, *folders]), "")
    audit.note(request, files=len(written), folders=len(folders), first=first)
    await files.write(request.app.state.content_writers, written, folders, caller.name)
    states |= {path: ("REFUSED", reason) for path, reason in refused.items()}
    order = [*(one.path for one in body.files), *body.folders]
    return _outcomes([(path, *states.get(path, ("WRITTEN", ""))) for path in order])


def _outcomes(reported: Sequence[tuple[str, str, str]]) -> FileOutcomes:
    outcomes = [{"path": p, "state": state, "reason": reason} for p, state, reason in reported]
    return FileOutcomes.model_validate({"outcomes": outcomes})


@_router.post(
    "/blobs",
    tags=["blobs"],
    dependencies=[Depends(require("content:write")), Depends(allow_body(MAX_BYTES))],
    responses=documented(400, 408, 413, 415, 429, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {MEDIA_TYPE: BYTES},
        }
    },
)
async def put_blobs(request: Request) -> StoredBinaries:
    """Store many small binaries: a tar archive of up to 1,000, each named `sha256:` and its digest.

    It has at most 16 MiB; what is larger is put alone.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != MEDIA_TYPE:
        raise Problem(415, detail=f"send a tar archive as {MEDIA_TYPE}")
    state = request.app.state
    with state.incoming.taken(who(request.scope)):
        body = await request.body()
        stored = await anyio.to_thread.run_sync(
            _store, state.blobs, body, limiter=state.incoming_threads
        )
    found = [StoredBinary(digest=f"sha256:{one}", length=n) for one, n in stored.items()]
    return StoredBinaries(binaries=found)


def _store(store: BlobStore, body: bytes) -> Mapping[str, int]:
    try:
        binaries = unpacked(body)
    except BadArchive as error:
        raise Problem(422, detail=str(error)) from error
    store.put_many({binary_key(sha256): content for sha256, content in binaries.items()})
    return {sha256: len(content) for sha256, content in binaries.items()}


def _fault(path: str, caller: Principal) -> str:
    try:
        check_path(path)
    except InvalidPath as error:
        return str(error)
    if path == ROOT:
        return "the root is no node"
    inside = any(is_within(path, root) for root in caller.roots)
    return "" if inside else "it lies below none of your token's roots"


def _renew(store: BlobStore, digests: Sequence[str] | set[str]) -> Mapping[str, StoredBlob | None]:
    """Keep a sweep away from what will be referred to (R22), and learn what the store has."""
    keys = {digest: binary_key(digest.removeprefix("sha256:")) for digest in digests}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="renew") as workers:
        return dict(zip(keys, workers.map(store.renew, keys.values()), strict=True))


def _state(one: FileBody, found: StoredBlob | None) -> tuple[str, str]:
    if found is None:
        return "MISSING", f"{one.digest} is not in the blob store"
    if found.length != one.length:
        return "REFUSED", f"{one.digest} has {found.length} bytes, not {one.length}"
    return "WRITTEN", ""
