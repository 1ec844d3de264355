"""Package to tree: several packages in their order, in the caller's one transaction (R8).

In the library beside `build`: the format is written and read in one place, and so is
`content.node`, which services other than the content service change through functions only.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.content import tree
from packhorse.content.batches import batches
from packhorse.content.node import ROOT, Node, is_within, parent_of
from packhorse.content.parts import SubtreePart
from packhorse.db.rows import not_idle
from packhorse.packages.effects import (
    Effect,
    PartialRemoval,
    SubtreeRemoval,
    admit,
    effects,
    filtered,
)
from packhorse.packages.limits import LIMITS, PackageLimits
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.packages.scope import PathScope
from packhorse.wire.actions import notifies
from packhorse.wire.messages import PackageMessage

_PENDING_NODES = 5_000
_PENDING_BYTES = 4 * 1024**2
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
    path_filter: PathFilter = EVERYTHING,
) -> None:
    """Apply packages in order, with few statements; the caller commits, or rolls all back.

    A deep ADD leaves below its deep paths exactly what it carries, and one with a range does so
    within that part of the subtree; DELETE removes whole subtrees, missing ones too; INVALIDATE
    notifies; TEST does nothing. What `path_filter` does not take is neither written nor removed,
    and what it maps lies elsewhere (R35). Memory is constant.

    Raises:
        PackageRefused: type, action, paths or nodes are not what these roots and limits allow.
        PackageCorrupt, BlobCorrupt, Undecodable, InvalidPath, InvalidNode: the body is bad.
        BlobMissing, BlobStoreUnavailable: the body can't be had now.
        psycopg.Error: the database refuses.
    """
    application = _Application(conn, blobs, roots, limits, path_filter)
    for package in packages:
        application.add(package)
    application.finish()


def invalidate(conn: Connection, package_id: str, paths: Iterable[str]) -> None:
    """Notify at the commit that these subtrees are no longer what they were."""
    _notify(conn, list(_payloads(package_id, paths)))


class _Application:
    def __init__(
        self,
        conn: Connection,
        blobs: BlobStore,
        roots: Sequence[str],
        limits: PackageLimits,
        path_filter: PathFilter,
    ) -> None:
        self._conn, self._blobs, self._roots, self._limits = conn, blobs, roots, limits
        self._filter = path_filter
        self._changes = PendingChanges(conn, path_filter.spared)
        self._notifications: list[str] = []

    def add(self, package: PackageMessage) -> None:
        if notifies(package.entry.action):
            admit(package, self._roots)
            taken = PathScope((), self._filter.narrowed(package.entry).deep_paths)
            self._notifications += _payloads(package.entry.package_id, taken.deep)
        put = self._changes.replace if _is_small(package) else self._changes.stream
        for effect in self._effects(package):
            if isinstance(effect, Node):
                self._changes.put(effect)
            elif isinstance(effect, SubtreeRemoval):
                self._changes.remove(effect.path)
            elif isinstance(effect, PartialRemoval):
                self._changes.remove_parts(effect.parts)
            else:
                put(effect.part, effect.nodes)

    def _effects(self, package: PackageMessage) -> Iterator[Effect | PartialRemoval]:
        given = partial(effects, package, self._blobs, roots=self._roots, limits=self._limits)
        if self._filter.changes_nothing:
            return given()
        # No statement is about what is left out, however much that is.
        return filtered(given(reading=partial(not_idle, self._conn)), self._filter)

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
    most = _NOTIFY_PATH_BYTES  # also of their number, since each has several bytes
    for batch in batches(paths, _notified_bytes, most=most, most_size=most):
        yield json.dumps({"package_id": package_id[:120], "paths": batch}, ensure_ascii=False)


def _notified_bytes(path: str) -> int:
    return len(json.dumps(path, ensure_ascii=False).encode()) + 2


# In the library with `apply`, which is made of it.
class PendingChanges:
    """Removals and writes that wait to be made: first all removals, then all writes.

    That order is right as long as no removal came after a write below it, so `remove` first
    makes what waits when there is such a write, and `replace` drops such writes if the path itself
    is written: that creates also what a dropped write would have created above. Above the root
    there is nothing. What may lack its top lets such writes be made first. Where nodes of `spared`
    stay while those above go, folders take their places.
    """

    def __init__(self, conn: Connection, spared: Sequence[str] = ()) -> None:
        self._conn, self._spared = conn, spared
        self._spares = False
        self._removed: dict[SubtreePart, None] = {}
        self._written: dict[str, Node] = {}
        self._holders: set[str] = set()
        """Every path that is, or lies above, one of the writes."""
        self._bytes = 0

    def put(self, node: Node) -> None:
        """Write `node`; the last write of a path wins."""
        self._written[node.path] = node
        self._bytes += node.size
        above = node.path
        while above not in self._holders:
            self._holders.add(above)
            above = parent_of(above)
        if self._bytes > _PENDING_BYTES or len(self._written) > _PENDING_NODES:
            self.flush()

    def remove(self, path: str) -> None:
        """Remove `path` with its subtree."""
        if path in self._holders:
            self.flush()
        self._removed[SubtreePart.whole(path)] = None

    def remove_parts(self, parts: Sequence[SubtreePart]) -> None:
        """Remove the nodes of parts that have one top, but not what lies between them."""
        if parts[0].top in self._holders:
            self.flush()
        self._removed.update(dict.fromkeys(parts))
        self._spares = True

    def replace(self, part: SubtreePart, nodes: Iterable[Node]) -> None:
        """Make a part of a subtree exactly `nodes`."""
        if part.top in self._holders:
            nodes = iter(nodes)
            first = next(nodes, None)
            nodes = chain([first] if first else [], nodes)
            self._make_way(part, first)
        self._removed[part] = None
        for node in nodes:
            self.put(node)

    def _make_way(self, part: SubtreePart, first: Node | None) -> None:
        """Drop the writes in a part that is to begin with `first`, or make them where needed."""
        writes_top = part.top == ROOT or (first is not None and first.path == part.top)
        if part.is_whole and writes_top:
            for below in [path for path in self._written if is_within(path, part.top)]:
                del self._written[below]
        elif any(part.holds(path) for path in self._holders):
            self.flush()

    def stream(self, part: SubtreePart, nodes: Iterable[Node]) -> None:
        """Do the same at once and in constant memory."""
        self.flush()
        tree.replace_part(self._conn, part, nodes)

    def flush(self) -> None:
        """Make what waits."""
        if self._removed:
            tree.delete_parts(self._conn, list(self._removed))
        if self._written:
            tree.upsert(self._conn, list(self._written.values()))
        if self._spares:
            tree.add_folders(self._conn, sorted(tree.present(self._conn, self._spared)))
        self._spares = False
        self._removed, self._written, self._holders = {}, {}, set()
        self._bytes = 0
