"""Locks on paths: subscriptions keep the tree whole and wait only where their paths overlap.

Who writes a node relies on the folders above it; a removal that does not see the new node yet
would leave it without them. So a writer shares a lock on its path and on every path above, and
who removes a subtree has the lock of its top alone. All locks of a transaction are taken with one
statement and in one order, so subscriptions that wait for them never wait in a circle.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence

from psycopg import Connection

from packhorse.content.node import ROOT, parent_of
from packhorse.wire.actions import Paths, touched
from packhorse.wire.messages import PackageEntry, PackageMessage

MAX_LOCKS = 200
"""Of one transaction; Postgres has memory for some thousands in all sessions together."""

_MAX_DEPTH = 32
"""What lies deeper is locked by the subtree it is in, which bounds a long path's cost (R30)."""

# Without ORDER BY: the array is in order, and a sort could come after the locks.
_TAKE = """
    SELECT CASE WHEN alone THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key)
        END FROM unnest(%b::bigint[], %b::boolean[]) AS wanted (key, alone)
"""


Touches = Callable[[PackageEntry], tuple[Paths, Paths]]
"""Says which single nodes and which whole subtrees a package changes."""


def lock(
    connection: Connection, packages: Sequence[PackageMessage], touches: Touches = touched
) -> None:
    """Take the locks of what `packages` change, until the end of the transaction.

    Raises `psycopg.errors.LockNotAvailable` when another subscription has one of them for too long.
    """
    locks = path_locks(packages, touches)
    if locks:
        connection.execute(_TAKE, (list(locks), list(locks.values())))


def path_locks(
    packages: Sequence[PackageMessage], touches: Touches = touched, *, bound: int = MAX_LOCKS
) -> dict[int, bool]:
    """Return lock -> whether it is had alone, in the order in which to take them.

    None when nothing changes. Never more than `bound`, at least 1: whole subtrees are locked
    instead of what is in them, as far down the tree as that allows.
    """
    tree = _TouchedPaths()
    for path, removes in _changes(packages, touches):
        tree.add(path, removes)
    taken: dict[int, bool] = {}
    for path, alone in tree.locks(bound):
        key = _key(path)
        taken[key] = taken.get(key, False) or alone  # two paths may have one key
    return dict(sorted(taken.items()))


class _TouchedPaths:
    """The paths that are changed and all above them, by their number of segments."""

    def __init__(self) -> None:
        self._levels: list[dict[str, bool]] = [{} for _ in range(_MAX_DEPTH + 1)]
        """Path -> whether its subtree is had alone."""
        self._holders: set[str] = set()
        """Those with something below them that has a lock of its own."""

    def add(self, path: str, removes: bool) -> None:
        """Note a path; one that is none is refused later, when it is applied."""
        depth = 0 if path == ROOT else path.count("/")
        if depth > _MAX_DEPTH:
            segments = path.split("/", _MAX_DEPTH + 1)[: _MAX_DEPTH + 1]
            path, depth, removes = "/".join(segments), _MAX_DEPTH, True
        known = path in self._levels[depth]
        self._levels[depth][path] = self._levels[depth].get(path, False) or removes
        while not known and depth > 0:  # what is above a known one is known
            path, depth = parent_of(path), depth - 1
            self._holders.add(path)
            known = path in self._levels[depth]
            self._levels[depth].setdefault(path, False)

    def locks(self, bound: int) -> Iterator[tuple[str, bool]]:
        """Yield what is locked; the deepest of them stand for all that lies below."""
        depth = count = 0
        while depth < _MAX_DEPTH and count + len(self._levels[depth + 1]) < bound:
            depth += 1
            count += len(self._levels[depth])
        for level in self._levels[:depth]:
            yield from level.items()
        for path, alone in self._levels[depth].items():
            yield path, alone or path in self._holders


def _changes(packages: Sequence[PackageMessage], touches: Touches) -> Iterator[tuple[str, bool]]:
    """Yield each path that is written, and whether nodes below it are removed."""
    for package in packages:
        nodes, subtrees = touches(package.entry)
        yield from ((path, False) for path in nodes)
        yield from ((path, True) for path in subtrees)


def _key(path: str) -> int:
    # Every build must give a path the same key, for two may import into one database.
    text = "" if path == ROOT else path
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), signed=True)
