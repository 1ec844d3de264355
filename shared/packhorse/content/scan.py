"""Reading many nodes for other ends than a package: bulk exports, marks, audits, a demo's count.

Everything reads inside the caller's transaction, as the exporter, and in constant memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection, sql

from packhorse.content.node import Node, subtree_range
from packhorse.content.parts import SubtreePart
from packhorse.content.rows import COLUMNS, node_of
from packhorse.db.rows import stream_rows

_FETCH = 2_000
_FETCH_SIZES = 5_000
_FETCH_NODES = 50
"""Nodes may be a megabyte each."""


def _less(column: LiteralString) -> LiteralString:
    return f"""({column} - ARRAY(
        SELECT key FROM jsonb_object_keys({column}) AS key WHERE key = ANY(%(names)s)
        OR EXISTS (SELECT FROM unnest(%(beginnings)s::text[]) AS one WHERE starts_with(key, one))))
    """  # noqa: S608


LESS_PROPERTIES, LESS_BINARIES = _less("properties"), _less("binaries")
"""SQL: a node's without those of some `names`, or whose names have some `beginnings`."""


def _hash(path: LiteralString, properties: LiteralString, binaries: LiteralString) -> LiteralString:
    return f"""
    ('x' || left(encode(sha256(convert_to({path} || chr(10) || type || chr(10) || {properties}::text
    || chr(10) || {binaries}::text, 'UTF8')), 'hex'), 15))::bit(60)::bigint
    """


NODE_HASH = _hash("path", "properties", "binaries")
"""SQL: a node's hash, of 60 bits."""

_PLACED = "(%(beginning)s || substr(path, %(cut)s))"
_PLACED_HASH = _hash(_PLACED, LESS_PROPERTIES, LESS_BINARIES)

_SIZE = (
    "path, octet_length(path) + octet_length(type) "
    "+ pg_column_size(properties) + pg_column_size(binaries)"
)
_WITH_BINARIES = """
    SELECT path, binaries::text FROM content.node
    WHERE ctid >= %s::tid AND ctid < %s::tid AND binaries <> '{}'
"""
_INSIDE = """
    path >= %(low)s AND (%(high)s::text IS NULL OR path < %(high)s)
    AND (path = %(top)s OR (path >= %(below)s AND path < %(behind)s))
"""
_HASHES = f"SELECT count(*), coalesce(sum({NODE_HASH}), 0)::text FROM content.node WHERE {_INSIDE}"  # noqa: S608
_DIGESTS = f"SELECT path, {NODE_HASH} FROM content.node WHERE {_INSIDE}"  # noqa: S608
_PLACED_HASHES = _HASHES.replace(NODE_HASH, _PLACED_HASH)
_PLACED_DIGESTS = _DIGESTS.replace(NODE_HASH, _PLACED_HASH).replace("path", _PLACED, 1)
_DIFFERENT = f"""
    SELECT given.path FROM (
        SELECT path, type, {LESS_PROPERTIES} AS properties, {LESS_BINARIES} AS binaries FROM (
            SELECT path, type, properties::jsonb, binaries::jsonb
            FROM unnest(%(path)b::text[], %(type)b::text[], %(properties)b::text[],
                %(binaries)b::text[]) AS given (path, type, properties, binaries)) AS parsed
        ) AS given
    JOIN (SELECT path, type, {LESS_PROPERTIES} AS properties, {LESS_BINARIES} AS binaries
        FROM content.node WHERE path = ANY(%(path)b)) AS node ON node.path = given.path COLLATE "C"
    WHERE content.digest(given.type, given.properties, given.binaries)
        IS DISTINCT FROM content.digest(node.type, node.properties, node.binaries)
"""  # noqa: S608


def condition(part: SubtreePart) -> sql.Composed:
    """Return the SQL condition that holds for the paths in `part`; they compare by bytes."""
    below = sql.SQL("path >= {} AND path < {}").format(part.low, part.high)
    if not part.holds_top:
        return below
    return sql.SQL("path = {} OR ({})").format(part.top, below)


def sizes(connection: Connection, part: SubtreePart) -> Iterator[tuple[str, int]]:
    """Yield path and size, in bytes as the database stores them, of a part's nodes, by path."""
    yield from _of_part(connection, _SIZE, part, _FETCH_SIZES)


def nodes(connection: Connection, part: SubtreePart) -> Iterator[Node]:
    """Yield the nodes of a part in path order."""
    yield from map(node_of, _of_part(connection, COLUMNS, part, _FETCH_NODES))


def _of_part(
    connection: Connection, columns: LiteralString, part: SubtreePart, fetch: int
) -> Iterator[tuple[Any, ...]]:
    query = sql.SQL("SELECT {} FROM content.node WHERE {} ORDER BY path")
    selected = query.format(sql.SQL(columns), condition(part))
    return stream_rows(connection, selected, fetch=fetch)


def count_blocks(connection: Connection) -> int:
    """Return how many blocks the nodes take."""
    row: Any = connection.execute(
        "SELECT pg_relation_size('content.node') / current_setting('block_size')::int"
    ).fetchone()
    return int(row[0])


def binaries_in_blocks(connection: Connection, first: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield path and binaries, as JSON, of nodes with binaries in blocks from `first` to `end`."""
    bounds = (f"({first},0)", f"({end},0)")
    yield from stream_rows(connection, _WITH_BINARIES, bounds, fetch=_FETCH)


def range_starts(connection: Connection, *, least_nodes: int, most_ranges: int) -> list[str]:
    """Return where ranges of about equal size begin, the first of them at the very beginning."""
    counted: Any = connection.execute("SELECT count(*) FROM content.node").fetchone()
    rows = connection.execute(
        """
        SELECT path FROM (
            SELECT path, row_number() OVER (ORDER BY path) AS number FROM content.node) AS numbered
        WHERE number %% %s = 0 ORDER BY path
        """,
        (max(least_nodes, counted[0] // most_ranges),),
    ).fetchall()
    return ["", *(path for (path,) in rows)]


def bounds_below(top: str, low: str, high: str | None) -> dict[str, str | None]:
    """Return what names a range of the paths at and below `top`; without `high` it is open."""
    below, behind = subtree_range(top)
    return {"low": low, "high": high, "top": top, "below": below, "behind": behind}


@dataclass(frozen=True, slots=True)
class AsAuthored:
    """How nodes are hashed that lie elsewhere at the author: with another beginning of the path.

    Properties of these names, or with these beginnings of names, are left out.
    """

    source: str = ""
    target: str = ""
    names: Sequence[str] = ()
    beginnings: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether that changes a hash."""
        return bool(self.source != self.target or self.names or self.beginnings)

    @property
    def parameters(self) -> dict[str, Any]:
        """What the statements call it."""
        names = {"names": list(self.names), "beginnings": list(self.beginnings)}
        return {"beginning": self.source, "cut": len(self.target) + 1, **names}


def hash_range(
    connection: Connection, bounds: Mapping[str, str | None], placed: AsAuthored = AsAuthored()
) -> tuple[int, str]:
    """Return how many nodes are in the range, and the sum of their hashes as text."""
    query = _PLACED_HASHES if placed else _HASHES
    row: Any = connection.execute(query.encode(), {**bounds, **placed.parameters}).fetchone()
    return row[0], row[1]


def node_hashes(
    connection: Connection, bounds: Mapping[str, str | None], placed: AsAuthored = AsAuthored()
) -> Iterator[tuple[str, int]]:
    """Yield path and hash of the nodes in the range."""
    query = _PLACED_DIGESTS if placed else _DIGESTS
    yield from stream_rows(connection, query, {**bounds, **placed.parameters}, fetch=_FETCH)


def different(
    connection: Connection, rows: Sequence[tuple[str, ...]], placed: AsAuthored = AsAuthored()
) -> list[str]:
    """Return the paths of those (path, type, properties, binaries) that differ from the node's.

    They are compared as the database stores JSON: spacing and order of members don't count, and
    what `placed` leaves out does not. Raises `psycopg.DataError` when one of them is no JSON that
    the database can hold.
    """
    columns = dict(
        zip(
            ("path", "type", "properties", "binaries"),
            map(list, zip(*rows, strict=True)),
            strict=True,
        )
    )
    found = connection.execute(_DIFFERENT.encode(), {**columns, **placed.parameters}).fetchall()
    return [path for (path,) in found]


def count_nodes(connection: Connection, root: str) -> tuple[int, int]:
    """Return how many nodes are at and below `root`, and how many of them have binaries."""
    row: Any = connection.execute(
        """
        SELECT count(*), count(*) FILTER (WHERE binaries <> '{}')
        FROM content.node WHERE path = %s OR starts_with(path, %s)
        """,
        (root, f"{root}/"),
    ).fetchone()
    return row[0], row[1]


def spread_paths(connection: Connection, root: str, type_: str, count: int) -> list[str]:
    """Return about `count` paths of nodes of a type, spread over all below `root`."""
    rows = connection.execute(
        """
        SELECT path FROM (
            SELECT path, row_number() OVER (ORDER BY path) AS place, count(*) OVER () AS total
            FROM content.node WHERE starts_with(path, %s) AND type = %s) AS numbered
        WHERE place %% greatest(total / %s, 1) = 0 ORDER BY path LIMIT %s
        """,
        (f"{root}/", type_, count, count),
    ).fetchall()
    return [path for (path,) in rows]
