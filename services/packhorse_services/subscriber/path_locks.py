"""Locks on paths, so that lanes keep the tree a tree and delay each other only where they meet.

Who writes a node relies on the folders above it; a removal that does not see the new node yet
would leave it without them. So a writer shares a lock on its path and on every path above, and
who removes a subtree has the lock of its top alone. All locks of a transaction are taken with one
statement and in one order, so lanes that wait for them never wait in a circle.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from psycopg import Connection

from packhorse.wire.messages import Action, PackageMessage

MAX_LOCKS = 200
"""Of one transaction; Postgres has memory for some thousands in all sessions together."""

_MAX_DEPTH = 32
"""What lies deeper is locked by the subtree it is in, which bounds a long path's cost (R30)."""

# Without ORDER BY: the array is in order, and a sort could come after the locks.
_TAKE = """
    SELECT CASE WHEN alone THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key)
        END FROM unnest(%b::bigint[], %b::boolean[]) AS wanted (key, alone)
"""


def lock(connection: Connection, packages: Sequence[PackageMessage]) -> None:
    """Take the locks of what `packages` change, until the end of the transaction.

    Raises `psycopg.errors.LockNotAvailable` when another lane has one of them for too long.
    """
    locks = path_locks(packages)
    if locks:
        connection.execute(_TAKE, (list(locks), list(locks.values())))


def path_locks(packages: Sequence[PackageMessage], *, bound: int = MAX_LOCKS) -> dict[int, bool]:
    """Return lock -> whether it is had alone, in the order in which to take them.

    None when nothing changes. Never more than `bound`, at least 1: whole subtrees are locked
    instead of what is in them, as far down the tree as that allows.
    """
    levels = [_Level() for _ in range(_MAX_DEPTH + 1)]
    for path, removes in _changes(packages):
        _add(levels, path, removes)
    depth = count = 0
    while depth < _MAX_DEPTH and count + len(levels[depth + 1].locks) < bound:
        depth += 1
        count += len(levels[depth].locks)
    levels[depth].close()
    taken: dict[int, bool] = {}
    for level in levels[: depth + 1]:
        for key, alone in level.locks.items():  # two paths may have one key
            taken[key] = taken.get(key, False) or alone
    return dict(sorted(taken.items()))


@dataclass(slots=True)
class _Level:
    """The paths with one number of segments."""

    locks: dict[int, bool] = field(default_factory=dict)
    holders: set[int] = field(default_factory=set)
    """Those with something below them that has a lock of its own."""

    def close(self) -> None:
        """Stand for all that lies below."""
        for key in self.holders:
            self.locks[key] = True


def _changes(packages: Sequence[PackageMessage]) -> Iterator[tuple[str, bool]]:
    """Yield each path that is written, and whether nodes below it are removed."""
    for package in packages:
        entry = package.entry
        if entry.action is Action.DELETE:
            yield from ((path, True) for path in (*entry.paths, *entry.deep_paths))
        elif entry.action is Action.ADD:
            yield from ((path, False) for path in entry.paths)
            yield from ((path, True) for path in entry.deep_paths)


def _add(levels: Sequence[_Level], path: str, removes: bool) -> None:
    """Note a path and those above it; a path that is none is refused later, when it is applied."""
    segments = [segment for segment in path.split("/", _MAX_DEPTH + 1) if segment]
    digest = hashlib.blake2b(digest_size=8)
    key = _key(digest)
    levels[0].locks.setdefault(key, False)
    for depth, segment in enumerate(segments[:_MAX_DEPTH]):
        levels[depth].holders.add(key)
        digest.update(b"/" + segment.encode("utf-8", "surrogatepass"))
        key = _key(digest)
        levels[depth + 1].locks.setdefault(key, False)
    if removes or len(segments) > _MAX_DEPTH:
        levels[min(len(segments), _MAX_DEPTH)].locks[key] = True


def _key(digest: "hashlib.blake2b") -> int:
    return int.from_bytes(digest.digest(), signed=True)
