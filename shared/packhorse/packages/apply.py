"""Package to tree: several packages in their order, in the caller's one transaction (R8)."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.content.node import ROOT, Node
from packhorse.content.parts import SubtreePart
from packhorse.packages.body import unpack
from packhorse.packages.changes import Changes
from packhorse.packages.limits import (
    LIMITS,
    PACKAGE_TYPE,
    PART_TYPE,
    Limits,
    PackageRefused,
)
from packhorse.packages.scope import Scope, first_outside, part_of
from packhorse.wire.messages import Action, PackageMessage

INVALIDATE_CHANNEL = "packhorse_invalidate"
"""Who listens to it gets JSON: `package_id` and some `paths`, at the commit of the import."""

_NOTIFY_PATH_BYTES = 6_500
"""What paths may take of a notification; Postgres allows 8,000 bytes in all."""
_SMALL_BYTES = 1024**2
"""Content of up to this size may be collected; a larger deep path is streamed."""


def apply(
    conn: Connection,
    packages: Iterable[PackageMessage],
    blobs: BlobStore,
    *,
    roots: Sequence[str] = (ROOT,),
    limits: Limits = LIMITS,
) -> None:
    """Apply packages in order, with few statements; the caller commits, or rolls all back.

    A deep ADD leaves below its deep paths exactly what it carries, and one with a range does so
    within that part of the subtree; DELETE removes whole subtrees, missing ones too; INVALIDATE
    notifies; TEST does nothing. Memory is constant.

    Raises:
        PackageRefused: type, action, paths or nodes are not what these roots and limits allow.
        PackageCorrupt, Undecodable, InvalidPath, InvalidNode: the body is bad.
        BlobMissing, BlobStoreUnavailable: the body can't be had now.
        psycopg.Error: the database refuses.
    """
    application = _Application(conn, blobs, roots, limits)
    for package in packages:
        application.add(package)
    application.finish()


class _Application:
    def __init__(
        self, conn: Connection, blobs: BlobStore, roots: Sequence[str], limits: Limits
    ) -> None:
        self._conn, self._blobs, self._roots, self._limits = conn, blobs, roots, limits
        self._changes = Changes(conn)
        self._notifications: list[str] = []

    def add(self, package: PackageMessage) -> None:
        entry = package.entry
        if entry.action is Action.TEST:
            return
        scope = self._admit(package)
        part = part_of(entry)
        if part is not None:
            self._write_part(package, part)
        elif entry.action is Action.ADD:
            self._write(package, scope)
        elif entry.action is Action.DELETE:
            for path in (*scope.shallow, *scope.deep):
                self._changes.remove(path)
        else:
            self._notifications += _payloads(entry.package_id, (*scope.shallow, *scope.deep))

    def finish(self) -> None:
        self._changes.flush()
        if self._notifications:
            self._conn.execute(
                "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS given (payload)",
                (INVALIDATE_CHANNEL, self._notifications),
            )

    def _admit(self, package: PackageMessage) -> Scope:
        entry = package.entry
        _check_type(package)
        if (package.body is not None) != (entry.action is Action.ADD):
            raise PackageRefused(f"{entry.action.value} comes with a body, or ADD without one")
        scope = Scope(entry.paths, entry.deep_paths)
        outside = first_outside((*scope.shallow, *scope.deep), self._roots)
        if outside is not None:
            raise PackageRefused(f"{outside!r} is outside the import roots of this subscriber")
        return scope

    def _write(self, package: PackageMessage, scope: Scope) -> None:
        nodes = unpack(package, self._blobs, self._limits)
        if not scope.deep:
            for node in nodes:
                self._write_alone(node, scope)
            return
        put = self._changes.replace if _is_small(package) else self._changes.stream
        seen: set[str] = set()
        for deep, run in groupby(nodes, lambda node: scope.deep_path_of(node.path)):
            if deep is None:
                for node in run:
                    self._write_alone(node, scope)
            elif deep in seen:
                raise PackageRefused(f"the nodes of deep path {deep!r} are not together")
            else:
                seen.add(deep)
                put(SubtreePart.whole(deep), _beginning_with(deep, run))
        if len(seen) != len(scope.deep):
            raise PackageRefused("the package holds no nodes of one of its deep paths")

    def _write_part(self, package: PackageMessage, part: SubtreePart) -> None:
        put = self._changes.replace if _is_small(package) else self._changes.stream
        put(part, _all_of(part, unpack(package, self._blobs, self._limits)))

    def _write_alone(self, node: Node, scope: Scope) -> None:
        if not scope.allows_alone(node.path):
            raise PackageRefused(f"{node.path!r} is in the package but not in its paths")
        if first_outside([node.path], self._roots) is not None:
            raise PackageRefused(f"{node.path!r} is outside the import roots of this subscriber")
        self._changes.put(node)


def _check_type(package: PackageMessage) -> None:
    entry = package.entry
    if package.package_type not in (PACKAGE_TYPE, PART_TYPE):
        raise PackageRefused(f"unknown package type {package.package_type[:80]!r}; upgrade")
    if (package.package_type == PART_TYPE) != bool(entry.range_from or entry.range_to):
        raise PackageRefused(f"a package has a range exactly when its type is {PART_TYPE}")


def _is_small(package: PackageMessage) -> bool:
    return package.body is not None and package.body.content_length <= _SMALL_BYTES


def _all_of(part: SubtreePart, nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        if not part.holds(node.path):
            raise PackageRefused(f"{node.path!r} is in the package but not in its range")
        yield node


def _beginning_with(deep: str, nodes: Iterable[Node]) -> Iterator[Node]:
    for number, node in enumerate(nodes):
        if number == 0 and deep not in (ROOT, node.path):
            raise PackageRefused(f"the nodes of deep path {deep!r} do not begin with its own")
        yield node


def _payloads(package_id: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield notifications that together name all paths, each below Postgres' 8,000 bytes."""
    batch: list[str] = []
    size = 0
    for path in paths:
        length = len(json.dumps(path, ensure_ascii=False).encode()) + 2
        if batch and size + length > _NOTIFY_PATH_BYTES:
            yield _payload(package_id, batch)
            batch, size = [], 0
        batch.append(path)
        size += length
    if batch:
        yield _payload(package_id, batch)


def _payload(package_id: str, paths: list[str]) -> str:
    return json.dumps({"package_id": package_id[:120], "paths": paths}, ensure_ascii=False)
