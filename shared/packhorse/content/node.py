"""Paths and nodes: what content is made of, whatever carries it."""

import re
from dataclasses import dataclass

from packhorse.errors import Permanent

MAX_PATH_BYTES = 2048
ROOT = "/"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class InvalidPath(Permanent):
    """The path is none (R29): it is refused as it is, never repaired."""


class InvalidNode(Permanent):
    """A node's type, properties or binaries are not what a repository holds."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary property: a reference into the blob store, never the bytes."""

    name: str
    sha256: str
    """64 lower-case hex digits."""
    length: int
    media_type: str


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that would triple the cost of making one
class Node:
    """One node, which nobody changes. `properties` is the text of a JSON object: none parses it."""

    path: str
    type: str
    properties: str = "{}"
    binaries: tuple[Binary, ...] = ()

    @property
    def size(self) -> int:
        """Characters that it holds, which bounds what waits in memory."""
        size = len(self.path) + len(self.type) + len(self.properties)
        for binary in self.binaries:
            size += len(binary.name) + len(binary.sha256) + len(binary.media_type)
        return size


def has_control(text: str) -> bool:
    """Return whether a text holds a control character."""
    return _CONTROL.search(text) is not None


def check_path(path: str) -> str:
    """Return `path` unchanged, or raise `InvalidPath` with the reason (R29).

    A path is absolute, has no empty, `.` or `..` segment, no control character, no lone
    surrogate, and at most 2,048 bytes of UTF-8. The root itself is `/`.
    """
    if path == ROOT or _is_plain(path):
        return path
    if not path.startswith("/"):
        raise InvalidPath(f"{path[:80]!r} is not absolute; begin it with a slash")
    try:
        encoded = path.encode()
    except UnicodeEncodeError as error:
        raise InvalidPath(f"{path[:80]!r} holds a lone surrogate; send valid UTF-8") from error
    if len(encoded) > MAX_PATH_BYTES:
        raise InvalidPath(f"{path[:80]!r}… has {len(encoded)} bytes; {MAX_PATH_BYTES} are allowed")
    for segment in path[1:].split("/"):
        if segment in ("", ".", ".."):
            raise InvalidPath(f"{path[:80]!r} has the segment {segment!r}; leave it out")
    if _CONTROL.search(path):
        raise InvalidPath(f"{path[:80]!r} holds a control character; leave it out")
    return path


def _is_plain(path: str) -> bool:
    """Return whether a few cheap looks show that a path is one, as they do for nearly all."""
    return (
        path.isascii()
        and path.isprintable()
        and path[:1] == "/"
        and path[-1:] != "/"
        and "//" not in path
        and "/." not in path
        and len(path) <= MAX_PATH_BYTES
    )


def is_within(path: str, root: str) -> bool:
    """Return whether `path` is `root` or lies below it; `/a` holds `/a/b` and not `/ab`."""
    return root in (ROOT, path) or (root != "" and path.startswith(root + "/"))


def parent_of(path: str) -> str:
    """Return the path above; the root has none and is returned itself."""
    return path.rpartition("/")[0] or ROOT


def ancestors_of(path: str) -> list[str]:
    """Return the paths above, nearest to the root first, without the root itself."""
    segments = path[1:].split("/")[:-1]
    return ["/" + "/".join(segments[: depth + 1]) for depth in range(len(segments))]


def subtree_range(path: str) -> tuple[str, str]:
    """Return (low, high) such that exactly the paths below `path` are >= low and < high.

    By bytes, as `COLLATE "C"` compares: `0` follows `/`. For all below the root.
    """
    base = "" if path == ROOT else path
    return base + "/", base + "0"
