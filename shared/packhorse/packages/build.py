"""Tree to package: the nodes that an action carries, from the caller's one snapshot (R6)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from psycopg import Connection

from packhorse.content import tree
from packhorse.content.node import ROOT, Node
from packhorse.errors import Permanent
from packhorse.packages.scope import PathScope, first_outside
from packhorse.wire.actions import exports
from packhorse.wire.messages import Action

_READ_NODES = 50


class PathMissing(Permanent):
    """A path to distribute does not exist at the author."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} does not exist; distribute what is there, or use DELETE")
        self.path = path


class PathPresent(Permanent):
    """The author has a path, or something below it, that is to be deleted as absent."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the author has {path!r} again, and deleting it would remove that; "
            "POST /distribute with ADD to send what is there, or with DELETE if it is to go"
        )
        self.path = path


class PathRefused(Permanent):
    """A path lies outside the roots of the one who asks."""

    def __init__(self, path: str, roots: Sequence[str]) -> None:
        super().__init__(f"{path!r} is below none of the caller's roots: {', '.join(roots)}")
        self.path = path


class ShallowReader:
    """Reads nodes for several exports of one transaction with few statements.

    `upcoming` are paths that will be asked for, about in this order: they are read with those that
    are asked for before them. `found` is what was read already, of which nothing is read again
    while all that is asked for is there. Of one transaction; keeps at most 50 nodes by itself.
    """

    def __init__(
        self,
        conn: Connection,
        upcoming: Iterable[str] = (),
        found: Mapping[str, Node | None] | None = None,
    ) -> None:
        self._conn, self._upcoming = conn, iter(upcoming)
        self._found = found or {}

    def read(self, paths: Sequence[str]) -> list[Node]:
        """Return the nodes of at most 50 paths that exist, in the order of the paths."""
        if not all(path in self._found for path in paths):
            ahead = islice(self._upcoming, _READ_NODES - len(paths))
            wanted = list(dict.fromkeys((*paths, *ahead)))
            found = {node.path: node for node in tree.read(self._conn, wanted)}
            self._found = {path: found.get(path) for path in wanted}
        return [node for path in paths if (node := self._found[path]) is not None]


def export(
    conn: Connection,
    action: Action,
    paths: Sequence[str],
    deep_paths: Sequence[str],
    roots: Sequence[str] = (ROOT,),
    *,
    reader: ShallowReader | None = None,
) -> Iterator[Node]:
    """Yield the nodes of a package: none unless `action` is ADD.

    A shallow path is the node itself, a deep path the node and all below it, each node once.
    Shallow ones come first, then each deep path's nodes together, the path itself first; the
    root is no node, and stands for all that lies below it. Runs in the caller's transaction and
    with its role; memory is constant. `reader` is one of that transaction, for several exports.

    Raises:
        InvalidPath, PathRefused: at once.
        PathMissing: while the nodes are taken, for a path of an ADD that is not there.
    """
    scope = PathScope(paths, deep_paths)
    outside = first_outside((*scope.shallow, *scope.deep), roots)
    if outside is not None:
        raise PathRefused(outside, roots)
    return _nodes(conn, scope, reader or ShallowReader(conn)) if exports(action) else iter(())


def require_absent(conn: Connection, paths: Sequence[str], deep_paths: Sequence[str]) -> None:
    """Raise `PathPresent` if there is a node at one of the paths or below it.

    Runs in the caller's transaction and with its role.
    """
    for path in (*paths, *deep_paths):
        if tree.exists(conn, path):
            raise PathPresent(path)


def _nodes(conn: Connection, scope: PathScope, reader: ShallowReader) -> Iterator[Node]:
    shallow = iter(scope.shallow)
    while wanted := list(islice(shallow, _READ_NODES)):
        found = reader.read(wanted)
        missing = set(wanted).difference(node.path for node in found)
        if missing:
            raise PathMissing(min(missing))
        yield from found
    for path in scope.deep:
        nodes = tree.stream(conn, path)
        first = next(nodes, None)
        if first is None or path not in (ROOT, first.path):
            raise PathMissing(path)
        yield first
        yield from nodes
