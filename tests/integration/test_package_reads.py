"""How few statements the nodes of packages are read with."""

from typing import Any, cast

import psycopg
import pytest

from packhorse.content import tree
from packhorse.db.connect import connect
from packhorse.packages.build import PathMissing, ShallowReader, export
from packhorse.wire.messages import Action
from tests.harness.feed import page


class Counting:
    """A connection whose statements are counted."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection, self.statements = connection, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, *arguments: Any, **options: Any) -> Any:
        self.statements += 1
        return self._connection.execute(*arguments, **options)


def test_shallow_paths_of_several_packages_are_read_together(database_url: str) -> None:
    pages = [page(f"/many/p{number:03}", number) for number in range(120)]
    with connect(database_url, "tests") as connection:
        tree.upsert(connection, pages)
        counting = Counting(connection)
        wanted: list[list[str]] = [[one.path] for one in pages]
        wanted[20:20] = [["/many/none"], [one.path for one in reversed(pages)]]
        upcoming = [path for paths in wanted for path in paths if len(paths) == 1]
        reader = ShallowReader(cast("psycopg.Connection", counting), upcoming)
        for paths in wanted:
            own = reader if len(paths) == 1 else None
            nodes = export(connection, Action.ADD, paths, [], reader=own)
            if paths == ["/many/none"]:
                with pytest.raises(PathMissing):
                    list(nodes)
            else:
                alone = export(connection, Action.ADD, paths, [])
                assert list(nodes) == list(alone)
        assert counting.statements == 3
