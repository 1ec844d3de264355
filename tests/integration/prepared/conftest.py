"""An author with a large subtree, and a producer that sends it in parts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.open import open_journal
from tests.harness.prepared import DEEP, PAGES
from tests.harness.producers import Source
from tests.harness.publishing import Author, page


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    journal = open_journal(f"memory://{tmp_path}", client_name="tests")
    author = Author(database_url, journal, open_blobs(str(tmp_path / "blobs")))
    author.write(page(DEEP), *map(page, PAGES), page("/huge-2"))
    author.replica().reconcile()
    yield author
    author.close()


@pytest.fixture
def source(author: Author) -> Source:
    source = Source(author, "bulk")
    source.register()
    return source
