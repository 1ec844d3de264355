"""An author with a large subtree, and a producer that sends it in parts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.memory_author import memory_author
from tests.harness.prepared import DEEP, PAGES
from tests.harness.producers import Source
from tests.harness.publishing import Author, page


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    nodes = page(DEEP), *map(page, PAGES), page("/huge-2")
    with memory_author(database_url, tmp_path, *nodes) as author:
        author.replica().reconcile()
        yield author


@pytest.fixture
def source(author: Author) -> Source:
    source = Source(author, "bulk")
    source.register()
    return source
