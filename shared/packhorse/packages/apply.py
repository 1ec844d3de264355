"""Package to tree: several packages in their order, in the caller's one transaction (R8).

In the library beside `build`: the format is written and read in one place, and so is
`content.node`, which services other than the content service change through functions only.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.content.node import ROOT, Node
from packhorse.packages.changes import PendingChanges
from packhorse.packages.effects import SubtreeRemoval, admit, effects
from packhorse.packages.limits import LIMITS, PackageLimits
from packhorse.wire.actions import notifies
from packhorse.wire.messages import PackageMessage

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
    limits: PackageLimits = LIMITS,
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


def invalidate(conn: Connection, package_id: str, paths: Iterable[str]) -> None:
    """Notify at the commit that these subtrees are no longer what they were."""
    _notify(conn, list(_payloads(package_id, paths)))


class _Application:
    def __init__(
        self, conn: Connection, blobs: BlobStore, roots: Sequence[str], limits: PackageLimits
    ) -> None:
        self._conn, self._blobs, self._roots, self._limits = conn, blobs, roots, limits
        self._changes = PendingChanges(conn)
        self._notifications: list[str] = []

    def add(self, package: PackageMessage) -> None:
        if notifies(package.entry.action):
            scope = admit(package, self._roots)
            paths = (*scope.shallow, *scope.deep)
            self._notifications += _payloads(package.entry.package_id, paths)
        put = self._changes.replace if _is_small(package) else self._changes.stream
        for effect in effects(package, self._blobs, roots=self._roots, limits=self._limits):
            if isinstance(effect, Node):
                self._changes.put(effect)
            elif isinstance(effect, SubtreeRemoval):
                self._changes.remove(effect.path)
            else:
                put(effect.part, effect.nodes)

    def finish(self) -> None:
        self._changes.flush()
        if self._notifications:
            _notify(self._conn, self._notifications)


def _notify(conn: Connection, payloads: list[str]) -> None:
    conn.execute(
        "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS given (payload)",
        (INVALIDATE_CHANNEL, payloads),
    )


def _is_small(package: PackageMessage) -> bool:
    return package.body is not None and package.body.content_length <= _SMALL_BYTES


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
