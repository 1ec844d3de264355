"""The persistent id of an instance: given, or kept in a file, or made for this run."""

import contextlib
import os
import re
import tempfile
import uuid
from pathlib import Path

from packhorse.runtime.configuration import InvalidConfiguration

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def instance_id(given: str = "", file: Path | None = None) -> str:
    """Return `given`, else what the file holds, else a new id, which the file then holds.

    An id has 1 to 100 letters, digits, '.', '_' and '-'. The file is made whole or not at all, for
    its owner only; of several programs that start at once, one makes it and the others read it. A
    copied machine has a copy of the file: the one that comes second hears `DuplicateInstance`.
    Raises `InvalidConfiguration`.
    """
    if given:
        return _checked(given, "the instance id")
    if file is None:
        return _fresh()
    try:
        return _checked(_read(file) or _made(file), f"instance id file {file}: what it holds")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"instance id file {file}: {error}") from error


def _checked(value: str, what: str) -> str:
    if not _ID.fullmatch(value):
        raise InvalidConfiguration(f"{what} needs 1 to 100 letters, digits, '.', '_' or '-'")
    return value


def _fresh() -> str:
    return str(uuid.uuid4())


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return opened.read(1024).decode().strip()
    except FileNotFoundError:
        return None


def _made(file: Path) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=file.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w") as opened:
            opened.write(_fresh() + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        Path(draft).unlink()
    return _read(file) or ""
