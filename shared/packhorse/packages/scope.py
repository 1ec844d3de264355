"""The part of the tree that a package declares: which nodes may be in it, and which roots hold it.

Paths compare on segment boundaries only (R29): `/a` holds `/a/b` and not `/ab`.
"""

from collections.abc import Iterable, Sequence

from packhorse.content.node import (
    ROOT,
    InvalidPath,
    check_path,
    is_within,
    parent_of,
)
from packhorse.content.parts import SubtreePart
from packhorse.packages.limits import PACKAGE_TYPE, PART_TYPE, TARGETED_TYPE, PackageRefused
from packhorse.wire.actions import exports
from packhorse.wire.messages import PackageEntry


def covering(paths: Iterable[str]) -> list[str]:
    """Return, sorted, those of `paths` that lie below no other one of them."""
    kept: dict[str, None] = {}
    for path in sorted(set(paths)):  # a path sorts before all that lies below it
        if path not in kept and _nearest(path, kept) is None:
            kept[path] = None
    return list(kept)


def first_outside(paths: Iterable[str], roots: Sequence[str]) -> str | None:
    """Return the first of `paths` that lies below none of `roots`, or None."""
    if ROOT in roots:
        return None
    for path in paths:
        if not any(is_within(path, root) for root in roots):
            return path
    return None


def type_of(entry: PackageEntry) -> str:
    """Return the type of a package: what a build must know so that it imports the right thing."""
    if entry.targets:
        return TARGETED_TYPE
    return PART_TYPE if entry.range_from or entry.range_to else PACKAGE_TYPE


def part_of(entry: PackageEntry) -> SubtreePart | None:
    """Return the part of a subtree that a package carries, or None when it has no range.

    Raises `PackageRefused` unless it is an ADD of one deep path and a range within that.
    """
    if not entry.range_from and not entry.range_to:
        return None
    if not exports(entry.action) or entry.paths or len(entry.deep_paths) != 1:
        raise PackageRefused("a range belongs to an ADD of exactly one deep path and no others")
    try:
        return SubtreePart.between(entry.deep_paths[0], entry.range_from, entry.range_to)
    except InvalidPath as error:
        raise PackageRefused(f"the package's range is none: {error}") from error


class PathScope:
    """The shallow and deep paths of one package, checked and without overlap."""

    def __init__(self, paths: Iterable[str], deep_paths: Iterable[str]) -> None:
        """Raise `InvalidPath` for a path that is none."""
        self.deep = covering(check_path(path) for path in deep_paths)
        self._deep = dict.fromkeys(self.deep)
        self._last: str | None = None
        if self._deep:
            paths = [path for path in paths if self.deep_path_of(path) is None]
        self._shallow = {check_path(path) for path in paths}
        self.shallow = sorted(self._shallow)

    def deep_path_of(self, path: str) -> str | None:
        """Return the deep path that `path` belongs to, or None."""
        if not self._deep:
            return None
        if self._last is None or not is_within(path, self._last):
            self._last = _nearest(path, self._deep)
        return self._last

    def allows_alone(self, path: str) -> bool:
        """Return whether `path`, in no deep path, is a shallow one.

        What lies above a declared path is not in the package: its roots and its place in the
        order (R6) are checked for what it declares.
        """
        return path in self._shallow


def _nearest(path: str, among: dict[str, None]) -> str | None:
    """Return `path` or the nearest path above it that is one of `among`."""
    while path not in among:
        if path == ROOT:
            return None
        path = parent_of(path)
    return path
