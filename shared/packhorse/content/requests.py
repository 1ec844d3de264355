"""What a request says of content: the node's path, the caller's right to it, entity tags."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Header, Path, Request

from packhorse.content.node import InvalidPath, check_path, is_within
from packhorse.runtime.auth import Principal, require
from packhorse.runtime.guards import checked_first
from packhorse.runtime.principal import CALLER
from packhorse.runtime.problems import Problem

MAX_TAGS = 1000
"""Characters of a header that lists entity tags."""

_ANY = "*"


async def node_path(
    request: Request,
    path: Annotated[
        str,
        Path(description="The node's path without its first slash, each name percent-encoded"),
    ],
) -> str:
    """Return the node's path, decoded name by name and never normalised (R29).

    Raises `InvalidPath`, also for a name that holds an encoded slash.
    """
    del path  # the server has decoded it as a whole: an encoded slash is lost in it
    return _path_of(request)


def _path_of(request: Request) -> str:
    raw: bytes = request.scope["raw_path"]
    names = [unquote_to_bytes(name).decode() for name in raw.split(b"/")[2:]]
    if any("/" in name for name in names):
        raise InvalidPath("a name in the path holds an encoded slash; no name can")
    return check_path("/" + "/".join(names))


_writer = require("content:write")


async def readable_path(
    path: Annotated[str, Depends(node_path)],
    caller: Annotated[Principal, Depends(require("content:read"))],
) -> str:
    """Return the node's path, which the caller may read."""
    return _permitted(caller, path)


async def writable_path(
    path: Annotated[str, Depends(node_path)],
    caller: Annotated[Principal, Depends(_writer)],
) -> str:
    """Return the node's path, which the caller may write."""
    return _permitted(caller, path)


async def known_tags(
    if_none_match: Annotated[
        str | None, Header(max_length=MAX_TAGS, description="ETags that the client has")
    ] = None,
) -> "EntityTags":
    """Return the versions that the client has already."""
    return EntityTags.parse(if_none_match or "", weak=True)


async def _check_writable(request: Request) -> None:
    _permitted(request.scope[CALLER], _path_of(request))


checked_first(writable_path, _check_writable)
ReadablePath = Annotated[str, Depends(readable_path)]
WritablePath = Annotated[str, Depends(writable_path)]


class EntityTags:
    """A list of entity tags, or the star that stands for any."""

    def __init__(self, digests: Sequence[str], *, anything: bool = False) -> None:
        self.digests = list(digests)
        self.anything = anything

    def __contains__(self, digest: str) -> bool:
        return self.anything or digest in self.digests

    @classmethod
    def parse(cls, header: str, *, weak: bool) -> "EntityTags":
        """Return what `header` lists; weak ones match nothing unless `weak` (RFC 9110).

        Raises `Problem` 400 for what is no such list.
        """
        if header.strip() == _ANY:
            return cls((), anything=True)
        digests = []
        for tag in filter(None, map(str.strip, header.split(","))):  # ours hold no comma
            quoted = tag.removeprefix("W/")
            if len(quoted) < 2 or '"' in quoted[1:-1] or not quoted[0] == quoted[-1] == '"':
                raise Problem(400, detail=f'{header[:80]!r} is no list of ETags such as "0123abcd"')
            if weak or quoted == tag:
                digests.append(quoted[1:-1])
        return cls(digests)


KnownTags = Annotated[EntityTags, Depends(known_tags)]


def entity_tag(digest: str) -> str:
    """Return the ETag of a node."""
    return f'"{digest}"'


def _permitted(caller: Principal, path: str) -> str:
    if any(is_within(path, root) for root in caller.roots):
        return path
    raise Problem(403, detail=f"{path!r} lies below none of your roots: {', '.join(caller.roots)}")
