"""Whether author and subscribers hold the same, asked of their databases."""

from dataclasses import dataclass

from packhorse.content.tree import content_hash
from packhorse.db.connect import connect
from packhorse_services.cli.api import CommandFailed
from packhorse_services.cli.data_directory import DataDirectory
from packhorse_services.cli.embedded import EmbeddedPostgres
from packhorse_services.cli.stack import AUTHOR_DATABASE

_APPLICATION = "packhorse-demo"


@dataclass(frozen=True, slots=True)
class Holding:
    """What one repository holds below a path."""

    database: str
    nodes: int
    binaries: int
    digest: str

    def equals(self, other: "Holding") -> bool:
        """Tell whether both hold the same content."""
        return self.digest == other.digest and self.nodes == other.nodes


def holdings(directory: DataDirectory, subscribers: list[str], root: str) -> list[Holding]:
    """Return what each repository of a running stack holds at and below `root`, author first."""
    postgres = _server(directory)
    names = [AUTHOR_DATABASE, *subscribers]
    return [_holding(name, postgres.url(name), root) for name in names]


def pages(directory: DataDirectory, root: str, count: int) -> list[str]:
    """Return about `count` paths of the author, spread over all below `root`."""
    with connect(_server(directory).url(AUTHOR_DATABASE), _APPLICATION) as connection:
        rows = connection.execute(
            """
            SELECT path FROM (
                SELECT path, row_number() OVER (ORDER BY path) AS place, count(*) OVER () AS total
                FROM content.node WHERE starts_with(path, %s) AND type = 'file') AS numbered
            WHERE place %% greatest(total / %s, 1) = 0 ORDER BY path LIMIT %s
            """,
            (f"{root}/", count, count),
        ).fetchall()
    return [path for (path,) in rows]


def _server(directory: DataDirectory) -> EmbeddedPostgres:
    postgres = EmbeddedPostgres(directory.postgres)
    if not postgres.attach():
        raise CommandFailed(f"no PostgreSQL runs on {directory.root}")
    return postgres


def _holding(name: str, url: str, root: str) -> Holding:
    with connect(url, _APPLICATION) as connection:
        nodes, binaries = connection.execute(
            """
            SELECT count(*), count(*) FILTER (WHERE binaries <> '{}')
            FROM content.node WHERE path = %s OR starts_with(path, %s)
            """,
            (root, f"{root}/"),
        ).fetchall()[0]
        return Holding(name, nodes, binaries, content_hash(connection, root))
