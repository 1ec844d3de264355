"""What a request says of content: the node's path, the caller's right to it."""

from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Path, Request

from packhorse.content.node import InvalidPath, check_path, is_within
from packhorse.runtime.auth import Principal, require
from packhorse.runtime.guards import checked_first
from packhorse.runtime.principal import CALLER
from packhorse.runtime.problems import Problem


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


async def _check_writable(request: Request) -> None:
    _permitted(request.scope[CALLER], _path_of(request))


checked_first(writable_path, _check_writable)
ReadablePath = Annotated[str, Depends(readable_path)]
WritablePath = Annotated[str, Depends(writable_path)]


def _permitted(caller: Principal, path: str) -> str:
    if any(is_within(path, root) for root in caller.roots):
        return path
    raise Problem(403, detail=f"{path!r} lies below none of your roots: {', '.join(caller.roots)}")
