"""A file that is written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Give a file that becomes `target` once everything is in it. Raises `OSError`."""
    draft = target.with_name(f".{target.name}.new")
    try:
        with draft.open("wb+") as file:
            yield file
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
