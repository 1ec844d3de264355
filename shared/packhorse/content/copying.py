"""Many nodes into the tree at once, inside the caller's transaction and in constant memory.

In the library since it writes `content.node`, whose SQL is here.
"""

from collections.abc import Iterable, Iterator

from psycopg import Connection

from packhorse.content.node import Node
from packhorse.content.rows import format_binaries

_BATCH_NODES = 5_000
_BATCH_CHARACTERS = 4 * 1024 * 1024

_COPY = "COPY content.node (path, type, properties, binaries) FROM STDIN"


def copy_in(conn: Connection, nodes: Iterable[Node]) -> int:
    """Add nodes of which none is there yet, and return how many they were.

    They come with all folders above them: none is created. No statement is open while `nodes` is
    read, so that a caller who is paused there is idle to the server, whose time limits hold.
    Raises what `nodes` raises, and psycopg's errors for a path that is there, or no JSON object.
    """
    count = 0
    for batch in _batches(nodes):
        with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
            for node in batch:
                copy.write_row(
                    (node.path, node.type, node.properties, format_binaries(node.binaries))
                )
        count += len(batch)
    return count


def _batches(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    batch: list[Node] = []
    size = 0
    for node in nodes:
        batch.append(node)
        size += node.size
        if len(batch) >= _BATCH_NODES or size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
