"""Writing content over HTTP; reading is `packhorse.content.routes`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from pydantic import BaseModel

from packhorse.blobs.api import BlobStore, binary_key
from packhorse.content.json_limits import check_json
from packhorse.content.node import ROOT, InvalidPath
from packhorse.content.requests import WritablePath
from packhorse.content.routes import missing
from packhorse.content.schemas import BinaryReference, NodeBody, NodePatch
from packhorse.runtime.entity_tags import MAX_TAGS, EntityTags, entity_tag
from packhorse.runtime.http import add_routes
from packhorse.runtime.principal import CALLER
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.content.http import nodes
from packhorse_services.content.http.nodes import NodeChange, NodeWriteResult
from packhorse_services.content.http.writers import Writers


@dataclass(frozen=True, slots=True)
class Expectation:
    """What If-Match and If-None-Match ask for."""

    match: EntityTags | None
    absent: bool

    @property
    def digests(self) -> list[str] | None:
        """The versions that may be written over, or None for any."""
        return None if self.match is None or self.match.anything else self.match.digests


IfMatch = Annotated[
    str | None,
    Header(max_length=MAX_TAGS, description="Write only over a version with one of these ETags"),
]


async def _expectation(
    if_match: IfMatch = None,
    if_none_match: Annotated[
        str | None, Header(max_length=MAX_TAGS, description="`*`: write only where nothing is")
    ] = None,
) -> Expectation:
    if if_none_match is not None and (if_match is not None or if_none_match.strip() != "*"):
        raise Problem(400, detail="If-None-Match is understood alone and as * only, to create")
    match = None if if_match is None else EntityTags.parse(if_match, weak=False)
    return Expectation(match, absent=if_none_match is not None)


Expected = Annotated[Expectation, Depends(_expectation)]


async def _of_a_node(
    if_match: IfMatch = None,
    if_none_match: Annotated[
        str | None, Header(max_length=MAX_TAGS, include_in_schema=False)
    ] = None,
) -> Expectation:
    if if_none_match is not None:
        raise Problem(400, detail="If-None-Match is understood for PUT only, to create")
    return await _expectation(if_match)


ExpectedNode = Annotated[Expectation, Depends(_of_a_node)]


_router = APIRouter(route_class=StrictRoute, tags=["content"])


class WrittenNode(BaseModel):
    """What a write has left; `etag` is the header's value."""

    path: str
    etag: str


class Removed(BaseModel):
    """How many nodes a DELETE has removed."""

    nodes: int


def mount(app: FastAPI) -> None:
    """Add the routes that write; those that read have been mounted before."""
    app.state.content_writers = Writers(app.state.content_pool)
    add_routes(app, _router)


@_router.put(
    "/content/{path:path}",
    responses={
        201: {"model": WrittenNode, "description": "Created"},
        **documented(400, 412, 413, 415, 503),
    },
)
async def put_node(
    request: Request, response: Response, path: WritablePath, body: NodeBody, expected: Expected
) -> WrittenNode:
    """Write a node, and the folders above it that are missing."""
    change = await _change(request, path, body)
    writers: Writers = request.app.state.content_writers
    written: NodeWriteResult | None
    if expected.absent:
        written = await nodes.create(writers, change)
    elif expected.match is not None:
        written = await nodes.update(writers, change, expected.digests)
    else:
        written = await nodes.put(writers, change)
    if written is None:
        raise _unexpected(path)
    return _answer(response, path, written)


@_router.patch("/content/{path:path}", responses=documented(400, 404, 412, 413, 415, 503))
async def patch_node(
    request: Request,
    response: Response,
    path: WritablePath,
    body: NodePatch,
    expected: ExpectedNode,
) -> WrittenNode:
    """Merge members into a node (RFC 7396): `{"properties": {"title": "New", "old": null}}`."""
    change = await _change(request, path, body)
    writers: Writers = request.app.state.content_writers
    written = await nodes.patch(writers, change, expected.digests)
    if written is None:
        raise _missing_or_unexpected(path, expected)
    return _answer(response, path, written)


@_router.delete("/content/{path:path}", responses=documented(400, 404, 412, 503))
async def delete_node(request: Request, path: WritablePath, expected: ExpectedNode) -> Removed:
    """Remove a node and all below it."""
    _check_target(path)
    writers: Writers = request.app.state.content_writers
    removed = await nodes.remove(writers, path, expected.digests, request.scope[CALLER].name)
    if not removed:
        raise _missing_or_unexpected(path, expected)
    return Removed(nodes=removed)


async def _change(request: Request, path: str, body: NodeBody | NodePatch) -> NodeChange:
    """Return the change, once its JSON can be stored and its binaries are in the blob store."""
    _check_target(path)
    try:
        text = (await request.body()).decode()
    except UnicodeDecodeError:
        raise Problem(400, detail="the body is not UTF-8") from None
    check_json(text)
    given = {name: binary for name, binary in body.binaries.items() if binary is not None}
    if given:
        await anyio.to_thread.run_sync(_check_binaries, request.app.state.blobs, given)
    dumped = {name: binary and binary.model_dump() for name, binary in body.binaries.items()}
    user = request.scope[CALLER].name
    return NodeChange(path, body.type, text, json.dumps(dumped), user)


def _check_target(path: str) -> None:
    if path == ROOT:
        raise InvalidPath("the root holds nodes and is none; name a path below it")


def _check_binaries(store: BlobStore, given: Mapping[str, BinaryReference]) -> None:
    """Raise `Problem` 422 naming every binary that the store lacks, or has with other length.

    The others are renewed: the node that will refer to them keeps a sweep away from them (R22).
    """
    errors = [
        {"pointer": "#/binaries/" + name.replace("~", "~0").replace("/", "~1"), "detail": reason}
        for name, binary in given.items()
        for reason in _faults(store, binary)
    ]
    if errors:
        raise Problem(422, detail=f"{len(errors)} binaries can't be used", errors=errors)


def _faults(store: BlobStore, binary: BinaryReference) -> Iterable[str]:
    found = store.renew(binary_key(binary.digest.removeprefix("sha256:")))
    if found is None:
        yield f"{binary.digest} is not in the blob store; PUT /blobs/{binary.digest} first"
    elif found.length != binary.length:
        yield f"{binary.digest} has {found.length} bytes, not {binary.length}"


def _missing_or_unexpected(path: str, expected: Expectation) -> Problem:
    return missing(path) if expected.match is None else _unexpected(path)


def _unexpected(path: str) -> Problem:
    return Problem(412, detail=f"the node at {path!r} is not in the state that you expect")


def _answer(response: Response, path: str, written: NodeWriteResult) -> WrittenNode:
    response.status_code = 201 if written.created else 200
    response.headers["ETag"] = entity_tag(written.digest)
    return WrittenNode(path=path, etag=entity_tag(written.digest))
