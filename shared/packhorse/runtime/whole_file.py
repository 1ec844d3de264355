"""A file that is written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Give a file that becomes `target` once everything is in it. Raises `OSError`."""
    draft = target.with_name(f".{target.name}.new")
    draft.unlink(missing_ok=True)
    try:
        with draft.open("xb+") as file:  # others may know its name, and put a link there
            yield file
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
