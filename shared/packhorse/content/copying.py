"""Many nodes into the tree at once, inside the caller's transaction and in constant memory.

In the library since it writes `content.node`, whose SQL is here.
"""

from collections.abc import Iterable
from operator import attrgetter

from psycopg import Connection

from packhorse.content.batches import batches
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
    for batch in batches(nodes, attrgetter("size"), most=_BATCH_NODES, most_size=_BATCH_CHARACTERS):
        with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
            for node in batch:
                copy.write_row(
                    (node.path, node.type, node.properties, format_binaries(node.binaries))
                )
        count += len(batch)
    return count
