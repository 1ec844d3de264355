"""Whether author and subscribers hold the same, asked of their databases."""

from dataclasses import dataclass

from packhorse.content import scan
from packhorse.content.tree import content_hash
from packhorse.db.connect import connect
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.failures import CommandFailed
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.layout import AUTHOR_DATABASE

_APPLICATION = "packhorse-demo"


@dataclass(frozen=True, slots=True)
class RepositoryContent:
    """What one repository holds below a path."""

    database: str
    nodes: int
    binaries: int
    digest: str

    def equals(self, other: "RepositoryContent") -> bool:
        """Return whether both hold the same content."""
        return self.digest == other.digest and self.nodes == other.nodes


def holdings(
    directory: DataDirectory, subscribers: list[str], root: str
) -> list[RepositoryContent]:
    """Return what each repository of a running stack holds at and below `root`, author first."""
    postgres = _server(directory)
    names = [AUTHOR_DATABASE, *subscribers]
    return [_holding(name, postgres.url(name), root) for name in names]


def pages(directory: DataDirectory, root: str, count: int) -> list[str]:
    """Return about `count` paths of the author, spread over all below `root`."""
    with connect(_server(directory).url(AUTHOR_DATABASE), _APPLICATION) as connection:
        return scan.spread_paths(connection, root, "file", count)


def _server(directory: DataDirectory) -> EmbeddedPostgres:
    postgres = EmbeddedPostgres(directory.postgres)
    if not postgres.attach():
        raise CommandFailed(f"no PostgreSQL runs on {directory.root}")
    return postgres


def _holding(name: str, url: str, root: str) -> RepositoryContent:
    with connect(url, _APPLICATION) as connection:
        nodes, binaries = scan.count_nodes(connection, root)
        return RepositoryContent(name, nodes, binaries, content_hash(connection, root))
