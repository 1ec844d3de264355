"""Writing one node, each way in one transaction with the importer's rights (R23)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection

from packhorse.bookkeeping.audit_rows import write_act_async
from packhorse.content.json_limits import MAX_PROPERTIES_BYTES
from packhorse.content.node import InvalidNode, ancestors_of, subtree_range
from packhorse.content.schemas import MAX_BINARIES
from packhorse.content.tree import ADD_FOLDERS, FOLDER, SHAPE_CHANGED
from packhorse.db.blocking import in_blocking_code
from packhorse.jobs.content_changes.change import ChangeKind, ContentChange, stored_text
from packhorse.jobs.content_changes.recording import record_changes
from packhorse.jobs.content_changes.watches import READ_WATCHES, ContentWatch, as_watches
from packhorse_services.content.http.writers import Writers

_STATE = """
    content.digest(type, properties, binaries) AS digest, octet_length(properties::text) AS size,
    (SELECT count(*) FROM jsonb_object_keys(binaries)) AS binaries
"""
_INSERTED = f" RETURNING xmax = 0 AS created, {_STATE}"  # an upsert that updates sets xmax
_UPDATED = f" RETURNING false AS created, {_STATE}"
_INSERT = """
    INSERT INTO content.node AS node (path, type, properties, binaries)
    VALUES (%(path)s, %(type)s, coalesce(%(body)s::jsonb -> 'properties', '{}'), %(binaries)s)
"""
_OVERWRITE = """
    ON CONFLICT (path) DO UPDATE SET
        type = excluded.type, properties = excluded.properties, binaries = excluded.binaries
"""
_UPDATE = """
    UPDATE content.node SET type = %(type)s, binaries = %(binaries)s,
        properties = coalesce(%(body)s::jsonb -> 'properties', '{}')
    WHERE path = %(path)s
"""
_PATCH = """
    UPDATE content.node SET type = coalesce(%(type)s, type),
        properties = content.merge_patch(properties, %(body)s::jsonb -> 'properties'),
        binaries = content.merge_patch(binaries, %(binaries)s)
    WHERE path = %(path)s
"""
_TYPE_BEFORE = "SELECT path, type FROM content.node WHERE path = %s FOR NO KEY UPDATE"
_DELETE = "DELETE FROM content.node WHERE path = %(path)s"
_MATCHING = (
    " AND (%(tags)s::text[] IS NULL OR content.digest(type, properties, binaries) = ANY(%(tags)s))"
)
"""Of the row as it is when its lock is had: a writer that was faster makes the tag differ."""


@dataclass(frozen=True, slots=True)
class NodeWriteResult:
    """What a write has left."""

    digest: str
    created: bool


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What a request wants a node to be.

    `body` is the request's own text: only the database reads numbers without changing them.
    """

    path: str
    type: str | None
    body: str
    binaries: str
    user: str

    def parameters(self, tags: Sequence[str] | None = None) -> dict[str, Any]:
        """Return what the statements above take."""
        return {
            "path": self.path,
            "type": self.type,
            "body": self.body,
            "binaries": self.binaries,
            "tags": None if tags is None else list(tags),
        }


async def create(writers: Writers, change: NodeChange) -> NodeWriteResult | None:
    """Write a node that is not there yet; None when it is."""
    async with writers.transaction() as conn:
        await _add_folders(conn, change.path)
        return await _write(conn, _INSERT + "ON CONFLICT DO NOTHING" + _INSERTED, change)


async def put(writers: Writers, change: NodeChange) -> NodeWriteResult:
    """Write a node, whatever was there, and the folders above that are missing."""
    async with writers.transaction() as conn:
        await _add_folders(conn, change.path)
        written = await _write(conn, _INSERT + _OVERWRITE + _INSERTED, change)
    assert written is not None  # noqa: S101 - an upsert returns its row
    return written


async def update(
    writers: Writers, change: NodeChange, tags: Sequence[str] | None
) -> NodeWriteResult | None:
    """Write a node that is there with one of these digests; None when it isn't."""
    async with writers.transaction() as conn:
        return await _write(conn, _UPDATE + _MATCHING + _UPDATED, change, tags)


async def patch(
    writers: Writers, change: NodeChange, tags: Sequence[str] | None
) -> NodeWriteResult | None:
    """Merge into a node that is there, with one of these digests if any; None when it isn't."""
    async with writers.transaction() as conn:
        return await _write(conn, _PATCH + _MATCHING + _UPDATED, change, tags)


async def remove(writers: Writers, path: str, tags: Sequence[str] | None, user: str) -> int:
    """Remove a node, if it has one of these digests, and all below; return how many those were."""
    async with writers.transaction(SHAPE_CHANGED) as conn:
        given = {"path": path, "tags": None if tags is None else list(tags)}
        node = await conn.execute(_DELETE + _MATCHING, given)
        if node.rowcount == 0:
            return 0
        low, high = subtree_range(path)
        below = await conn.execute(
            "DELETE FROM content.node WHERE path >= %s AND path < %s", (low, high)
        )
        change = ContentChange(ChangeKind.REMOVED, (), [path], said_by(user))
        await record(conn, await watches(conn), [change])
        return 1 + below.rowcount


async def watches(conn: AsyncConnection) -> list[ContentWatch]:
    """Return who watches content; called with the rights of a writer."""
    return as_watches(await (await conn.execute(READ_WATCHES)).fetchall())


def said_by(user: str) -> Mapping[str, str]:
    """Return what the events of a request say of its caller."""
    return {"user": stored_text(user)}


async def record(
    conn: AsyncConnection, watching: Sequence[ContentWatch], changes: Sequence[ContentChange]
) -> None:
    """Store who did it, and the events for whoever watches, last in the transaction (R34)."""
    await conn.execute("SET LOCAL ROLE packhorse_bookkeeper")
    await write_act_async(conn)
    if watching:
        await in_blocking_code(conn, partial(record_changes, watches=watching, changes=changes))


async def _add_folders(conn: AsyncConnection, path: str) -> None:
    if above := ancestors_of(path):
        await conn.execute(ADD_FOLDERS, (FOLDER, above))


async def _write(
    conn: AsyncConnection, statement: str, change: NodeChange, tags: Sequence[str] | None = None
) -> NodeWriteResult | None:
    """Run a statement that returns `_STATE`; an error rolls the transaction back."""
    watching = await watches(conn)
    before: dict[str, str] = {}
    if any(watch.types for watch in watching):
        before = dict(await (await conn.execute(_TYPE_BEFORE, (change.path,))).fetchall())
    try:
        result = await conn.execute(statement, change.parameters(tags))
    except psycopg.DataError as error:
        raise InvalidNode("the database can't hold these properties") from error
    row: tuple[bool, str, int, int] | None = await result.fetchone()
    if row is None:
        return None
    created, digest, size, binaries = row
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidNode(
            f"the properties take {size} bytes; {MAX_PROPERTIES_BYTES} are allowed: put what is "
            "large into a binary"
        )
    if binaries > MAX_BINARIES:
        raise InvalidNode(f"the node has {binaries} binaries; {MAX_BINARIES} are allowed")
    kind = ChangeKind.ADDED if created else ChangeKind.CHANGED
    done = ContentChange(kind, [change.path], (), said_by(change.user), before)
    await record(conn, watching, [done])
    return NodeWriteResult(digest, created)
