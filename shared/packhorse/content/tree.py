"""The tree of nodes in Postgres, inside the caller's transaction.

A subtree is the node and a range of paths that compare by bytes; `LIKE` is never used (R29).
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, LiteralString

from psycopg import Connection

from packhorse.content.batches import batches
from packhorse.content.node import (
    ROOT,
    InvalidPath,
    Node,
    parent_of,
    subtree_range,
)
from packhorse.content.parts import SubtreePart
from packhorse.content.rows import COLUMNS, Row, format_binaries, node_of
from packhorse.db.rows import stream_rows

_COPY = "COPY content.node (path, type, properties, binaries) FROM STDIN"

FOLDER = "folder"
"""The type of a node that exists only because something lies below it."""

_BATCH_NODES = 2_000
_BATCH_BYTES = 4 * 1024 * 1024
_COPIED_NODES = 5_000
_FETCH_NODES = 50
"""Nodes may be a megabyte each, and the next ones larger than those before."""

# Who writes a node relies on the folders above it; a removal that does not see the new node yet
# would leave it without them. So the author's writers share a lock, and a removal has it alone.
_LOCK = 0x74726565  # "tree"

SHAPE_KEPT = f"SELECT pg_advisory_xact_lock_shared({_LOCK})"
"""First statement of a transaction that writes nodes."""

SHAPE_CHANGED = f"SELECT pg_advisory_xact_lock({_LOCK})"
"""First statement of a transaction that removes nodes."""

# A folder that is there is left out, for a conflict would wait for whoever writes to it. Removals
# are kept away by the locks that every writer takes. A scalar subquery is a look into the index for
# each folder; NOT EXISTS becomes a join, and one that is planned for a small tree reads all of it.
ADD_FOLDERS = """
    INSERT INTO content.node (path, type, properties, binaries)
    SELECT path, %s, '{}', '{}' FROM unnest(%b::text[]) AS above (path)
    WHERE (SELECT true FROM content.node AS present WHERE present.path = above.path) IS NULL
    ON CONFLICT (path) DO NOTHING
"""
"""Takes `FOLDER` and the paths at which one is to be, where nothing is."""

# Arrays go in binary form (%b): as text every quote of the JSON would be escaped, at 60 µs a page.
_UPSERT = """
    INSERT INTO content.node AS stored (path, type, properties, binaries)
    SELECT path, type, properties::jsonb, binaries::jsonb
    FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[])
        AS given (path, type, properties, binaries)
    ON CONFLICT (path) DO UPDATE SET
        type = excluded.type, properties = excluded.properties, binaries = excluded.binaries
"""

_READ = f"SELECT {COLUMNS} FROM content.node WHERE path = ANY(%b) ORDER BY path"  # noqa: S608

_DELETE_BELOW = """
    DELETE FROM content.node AS stored
    USING unnest(%b::text[], %b::text[]) AS below (low, high)
    WHERE stored.path >= below.low COLLATE "C" AND stored.path < below.high COLLATE "C"
"""


def upsert(conn: Connection, nodes: Sequence[Node]) -> None:
    """Write `nodes`, creating the folders above them that are missing; the last of a path wins.

    Two statements however many nodes there are. Each takes its rows in path order, so that two
    writers of paths that are there wait for each other instead of dead-locking. The missing
    folders come before all nodes, so two who make the same paths may dead-lock: try again.
    """
    if not nodes:
        return
    last = {node.path: node for node in nodes}
    ordered = [last[path] for path in sorted(last)]
    folders = _folders_above(last)
    with conn.pipeline():
        if folders:
            conn.execute(ADD_FOLDERS, (FOLDER, folders))
        conn.execute(
            _UPSERT,
            (
                [node.path for node in ordered],
                [node.type for node in ordered],
                [node.properties for node in ordered],
                [format_binaries(node.binaries) for node in ordered],
            ),
        )


def add_folders(conn: Connection, paths: Sequence[str]) -> None:
    """Create a folder at each of `paths`, and above it, where there is no node yet."""
    if folders := sorted({*paths, *_folders_above(paths)} - {ROOT}):
        conn.execute(ADD_FOLDERS, (FOLDER, folders))


def read(conn: Connection, paths: Sequence[str]) -> list[Node]:
    """Return the nodes of `paths` that exist, in path order."""
    rows: list[Row] = conn.execute(*reading(paths)).fetchall()
    return [node_of(row) for row in rows]


def reading(paths: Sequence[str]) -> tuple[LiteralString, list[Any]]:
    """Return the statement of `read`, for `rows.node_of` to read its rows."""
    return _READ, [list(paths)]


def exists(conn: Connection, path: str) -> bool:
    """Return whether there is a node at `path` or below it."""
    low, high = subtree_range(path)
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM content.node WHERE path = %b) "
        "OR EXISTS (SELECT FROM content.node WHERE path >= %b AND path < %b)",
        (path, low, high),
    ).fetchone()
    return row is not None and bool(row[0])


def present(conn: Connection, paths: Sequence[str]) -> dict[str, str]:
    """Return those of the paths at which there is a node, each with its type."""
    rows = conn.execute("SELECT path, type FROM content.node WHERE path = ANY(%s)", (list(paths),))
    return dict(rows.fetchall())


def with_types(conn: Connection, tops: Sequence[str], types: Sequence[str]) -> set[str]:
    """Return those of `tops` where a node at or below them has one of the types."""
    if not tops:
        return set()
    low, high = zip(*map(subtree_range, tops), strict=True)
    rows = conn.execute(
        """
        SELECT path FROM content.node WHERE path = ANY(%s) AND type = ANY(%s)
        UNION SELECT top FROM unnest(%s::text[], %s::text[], %s::text[]) AS below (top, low, high),
        LATERAL (
            SELECT FROM content.node WHERE path >= low AND path < high AND type = ANY(%s)
            ORDER BY path LIMIT 1  -- by the index, however few nodes are there
        ) AS one_of_them
        """,
        (list(tops), list(types), list(tops), list(low), list(high), list(types)),
    )
    return {path for (path,) in rows.fetchall()}


def stream(conn: Connection, path: str) -> Iterator[Node]:
    """Yield the node at `path`, then all below it in path order, in constant memory.

    Yields nothing when nothing is there. The transaction must stay open while it is read. May be
    abandoned at any node.
    """
    if path != ROOT:  # the root's range begins with the root itself
        yield from read(conn, [path])
    low, high = subtree_range(path)
    query = f"SELECT {COLUMNS} FROM content.node WHERE path >= %s AND path < %s ORDER BY path"  # noqa: S608
    yield from map(node_of, stream_rows(conn, query, (low, high), fetch=_FETCH_NODES))


def delete(conn: Connection, paths: Sequence[str]) -> int:
    """Remove each path with its subtree, and return how many nodes that were.

    A path where nothing is counts as removed.
    """
    return delete_parts(conn, [SubtreePart.whole(path) for path in paths])


def delete_parts(conn: Connection, parts: Sequence[SubtreePart]) -> int:
    """Remove the nodes of each part, and return how many that were."""
    tops = [part.top for part in parts if part.holds_top]
    lows, highs = [part.low for part in parts], [part.high for part in parts]
    with conn.pipeline():
        nodes = conn.execute("DELETE FROM content.node WHERE path = ANY(%b)", (tops,))
        below = conn.execute(_DELETE_BELOW, (lows, highs))
    return nodes.rowcount + below.rowcount


def cut(conn: Connection, path: str, nodes: int) -> Iterator[SubtreePart]:
    """Yield the subtree of `path` in parts of at most `nodes` nodes below it, in path order.

    Each is looked up when it is asked for, so the one before may be removed by then.
    """
    whole = SubtreePart.whole(path)
    low, holds_top = whole.low, whole.holds_top
    while True:
        row = conn.execute(
            "SELECT path FROM content.node WHERE path >= %b AND path < %b "
            "ORDER BY path OFFSET %s LIMIT 1",
            (low, whole.high, nodes),
        ).fetchone()
        high = whole.high if row is None else str(row[0])
        yield SubtreePart(path, holds_top, low, high)
        if row is None:
            return
        low, holds_top = high, False


def replace(conn: Connection, path: str, nodes: Iterable[Node]) -> None:
    """Make the subtree of `path` exactly `nodes`; see `replace_part`."""
    replace_part(conn, SubtreePart.whole(path), nodes)


def replace_part(conn: Connection, part: SubtreePart, nodes: Iterable[Node]) -> None:
    """Make a part of a subtree exactly `nodes`, which may be many: memory stays constant.

    Folders that `nodes` lacks on the way to one of them are created. The last node of a path
    wins. Raises `InvalidPath` when one of `nodes` lies outside; the caller then rolls back.
    """
    delete_parts(conn, [part])
    for batch in batches(
        _all_within(nodes, part), attrgetter("size"), most=_BATCH_NODES, most_size=_BATCH_BYTES
    ):
        upsert(conn, batch)


def content_hash(conn: Connection, path: str = ROOT) -> str:
    """Return 64 hex digits that two subtrees share exactly when paths and content are equal.

    The database computes it node by node, in path order.
    """
    low, high = subtree_range(path)
    hashed = conn.execute(
        """
        SELECT encode(sha256(content.chain(
            path || chr(10) || content.digest(type, properties, binaries) ORDER BY path)), 'hex')
        FROM (SELECT * FROM content.node WHERE path = %s
              UNION ALL
              SELECT * FROM content.node WHERE path >= %s AND path < %s AND path <> %s) AS part
        """,
        (path, low, high, path),
    )
    return str(hashed.fetchall()[0][0])


def copy_in(conn: Connection, nodes: Iterable[Node]) -> int:
    """Add nodes of which none is there yet, and return how many they were.

    They come with all folders above them: none is created. No statement is open while `nodes` is
    read, so that a caller who is paused there is idle to the server, whose time limits hold.
    Raises what `nodes` raises, and psycopg's errors for a path that is there, or no JSON object.
    """
    count = 0
    for batch in batches(nodes, attrgetter("size"), most=_COPIED_NODES, most_size=_BATCH_BYTES):
        with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
            for node in batch:
                copy.write_row(
                    (node.path, node.type, node.properties, format_binaries(node.binaries))
                )
        count += len(batch)
    return count


def _folders_above(paths: Iterable[str]) -> list[str]:
    """Return the paths above `paths` that are not among them, without the root."""
    seen = {ROOT, *paths}
    folders = []
    for path in paths:
        above = parent_of(path)
        while above not in seen:
            seen.add(above)
            folders.append(above)
            above = parent_of(above)
    return sorted(folders)


def _all_within(nodes: Iterable[Node], part: SubtreePart) -> Iterator[Node]:
    for node in nodes:
        if not part.holds(node.path):
            raise InvalidPath(f"{node.path!r} is not within what of {part.top!r} is replaced")
        yield node
