"""What routes read from the tree, each in one statement, with the exporter's rights (R23)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from packhorse.content.node import ROOT, Binary, subtree_range
from packhorse.content.rows import parse_binaries
from packhorse.db.connect import connect

Pool = AsyncConnectionPool[AsyncConnection]

MAX_CHILDREN = 1000
"""How many children one answer lists at most."""


@dataclass(frozen=True, slots=True)
class Document:
    """A node as routes show it: the text of a JSON object, and the digest that is its ETag."""

    digest: str
    body: str


@dataclass(frozen=True, slots=True)
class ChildNode:
    """One entry of a listing."""

    path: str
    type: str


@asynccontextmanager
async def lifespan(pool: Pool, _app: object) -> AsyncIterator[None]:
    """Keep the pool open while an app is served."""
    await pool.open()
    try:
        yield
    finally:
        await pool.close()


def ask(database_url: str, application: str) -> None:
    """Raise `psycopg.Error` unless the database answers, on a connection of its own."""
    with connect(database_url, application, autocommit=True) as connection:
        connection.execute("SELECT FROM content.node LIMIT 1")


@asynccontextmanager
async def reading(pool: Pool) -> AsyncIterator[AsyncConnection]:
    """Lend a connection inside a transaction that can only read content."""
    async with pool.connection() as conn:
        await conn.execute("SET LOCAL ROLE packhorse_exporter")
        yield conn


async def read_document(conn: AsyncConnection, path: str) -> Document | None:
    """Return the node, or None."""
    found = await conn.execute(
        """
        SELECT content.digest(type, properties, binaries), jsonb_build_object(
            'path', path, 'type', type, 'properties', properties, 'binaries', binaries)::text
        FROM content.node WHERE path = %s
        """,
        (path,),
    )
    row: tuple[str, str] | None = await found.fetchone()
    return None if row is None else Document(*row)


async def read_binary(conn: AsyncConnection, path: str, name: str) -> Binary | None:
    """Return the node's binary of that name, or None when either is missing."""
    found = await conn.execute(
        """
        SELECT jsonb_build_object(%s::text, binaries -> %s)::text
        FROM content.node WHERE path = %s AND binaries ? %s
        """,
        (name, name, path, name),
    )
    row: tuple[str] | None = await found.fetchone()
    return None if row is None else parse_binaries(row[0])[0]


# `below` is the least path to look at next. chr(1) follows a path itself and precedes every longer
# one, since names hold no control characters; '0' follows '/', hence all that lies deeper.
_CHILDREN = """
    WITH RECURSIVE step (path, below) AS (
        SELECT NULL::text COLLATE "C", %(start)s::text COLLATE "C"
        UNION ALL
        SELECT next.path, CASE next.name = next.rest
            WHEN true THEN next.path || chr(1) ELSE %(low)s || next.name || '0' END
        FROM step CROSS JOIN LATERAL (
            SELECT path, rest, split_part(rest, '/', 1) AS name
            FROM (
                SELECT path, substr(path, length(%(low)s) + 1) AS rest
                FROM content.node
                WHERE path >= step.below AND path < %(high)s AND path <> '/'
                ORDER BY path LIMIT 1
            ) AS nearest
        ) AS next
    )
    SELECT step.path, node.type FROM step
    CROSS JOIN LATERAL (
        SELECT type FROM content.node WHERE node.path = step.path OFFSET 0
    ) AS node
    WHERE step.below = step.path || chr(1)
    LIMIT %(limit)s
"""


async def list_children(
    conn: AsyncConnection, path: str, *, after: str | None, limit: int
) -> list[ChildNode] | None:
    """Return up to `limit` children by name, those after the name `after`; None without a parent.

    Takes as long for a child with a million nodes below it as for a leaf: the scan skips what
    lies deeper.
    """
    low, high = subtree_range(path)
    start = low if after is None else f"{low}{after}\x01"
    found = await conn.execute(
        _CHILDREN, {"start": start, "low": low, "high": high, "limit": limit}
    )
    children = [ChildNode(*row) for row in await found.fetchall()]
    if not children and path != ROOT and not await _exists(conn, path):
        return None
    return children


async def _exists(conn: AsyncConnection, path: str) -> bool:
    found = await conn.execute("SELECT FROM content.node WHERE path = %s", (path,))
    return await found.fetchone() is not None
