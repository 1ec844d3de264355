"""`at --restore` as a process, from where Spark hands over its rows: FILE PATH [broken].

The database is named by PACKHORSE_DATABASE_URL; the file has a row of JSON for each node. `broken`
deletes and writes in two transactions, so that a test can show that it would notice.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from psycopg import Connection

from packhorse.content import tree
from packhorse.content.node import Node
from packhorse_services.pipeline.at import task

_whole = tree.replace


class Rows:
    """Rows in the order of their paths, lent as a data frame lends them."""

    def __init__(self, file: str) -> None:
        self._rows = [tuple(json.loads(line)) for line in Path(file).read_text().splitlines()]

    def select(self, *_columns: str) -> "Rows":
        return self

    def count(self) -> int:
        return len(self._rows)

    def toLocalIterator(self, *, prefetchPartitions: bool) -> Iterator[Any]:  # noqa: N802, N803
        return iter(self._rows)


def in_two_transactions(connection: Connection, path: str, nodes: Iterable[Node]) -> None:
    tree.delete(connection, [path])
    connection.execute("COMMIT")
    connection.execute("BEGIN")
    _whole(connection, path, nodes)


if __name__ == "__main__":
    _, source, subtree, *broken = sys.argv
    if broken:
        tree.replace = in_two_transactions  # type: ignore[assignment]
    rows: Any = Rows(source)
    task.restore(rows, subtree, os.environ["PACKHORSE_DATABASE_URL"])
