"""A console over HTTP, one a module, beside a publisher whose answers are written by the test."""

from collections.abc import Iterator

import pytest

from tests.harness.browser import browser  # noqa: F401 - a fixture
from tests.harness.console import ConsoleSite, console_site


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleSite]:
    with console_site() as site:
        yield site
