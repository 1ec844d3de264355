"""What tests of the runtime share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Give the root logger its handlers and level back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
