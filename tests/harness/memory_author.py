"""An author whose journal is in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.messaging.open import open_journal
from tests.harness.publishing import Author


@contextmanager
def memory_author(database_url: str, folder: Path, *nodes: Node) -> Iterator[Author]:
    """Give an author that has these nodes; its blobs are in the folder."""
    journal = open_journal(f"memory://{folder}", client_name="tests")
    author = Author(database_url, journal, open_blobs(str(folder / "blobs")))
    author.write(*nodes)
    yield author
    author.close()
