"""Many small changes of the tree as few statements, with the result of making them in order.

In the library with `apply`, which is made of it.
"""

from collections.abc import Iterable
from itertools import chain

from psycopg import Connection

from packhorse.content import tree
from packhorse.content.node import ROOT, Node, is_within, parent_of
from packhorse.content.parts import SubtreePart

_PENDING_NODES = 5_000
_PENDING_BYTES = 4 * 1024**2


class PendingChanges:
    """Removals and writes that wait to be made: first all removals, then all writes.

    That order is right as long as no removal came after a write below it, so `remove` first
    makes what waits when there is such a write, and `replace` drops such writes if the path itself
    is written: that creates also what a dropped write would have created above. Above the root
    there is nothing. What may lack its top lets such writes be made first.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
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

    def replace(self, part: SubtreePart, nodes: Iterable[Node]) -> None:
        """Make a part of a subtree exactly `nodes`."""
        if part.top in self._holders:
            nodes = iter(nodes)
            first = next(nodes, None)
            nodes = chain([first] if first else [], nodes)
            if part.is_whole and (part.top == ROOT or (first and first.path == part.top)):
                for below in [path for path in self._written if is_within(path, part.top)]:
                    del self._written[below]
            elif any(part.holds(path) for path in self._holders):
                self.flush()
        self._removed[part] = None
        for node in nodes:
            self.put(node)

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
        self._removed, self._written, self._holders = {}, {}, set()
        self._bytes = 0
