"""A file of requests: one a line, numbered by its line, so that it can be replayed."""

import io
import json
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from packhorse_services.cli.client.failures import CommandFailed, Exit

_MAX_BATCH_BYTES = 512 * 1024
_MAX_LINE = 1024 * 1024
_MEMBERS = {"action", "paths", "deep_paths"}


class BadLine(ValueError):
    """A line is no request; the text says why."""


@dataclass(frozen=True, slots=True)
class ReplayLine:
    """One line that holds a request; `sequence` is its number in the file, from 1."""

    sequence: int
    text: bytes

    @property
    def is_request(self) -> bool:
        """Whether it is neither blank nor a comment."""
        return bool(self.text.strip()) and not self.text.lstrip().startswith(b"#")

    def body(self, action: str, *, deep: bool) -> dict[str, Any]:
        """Return the request; `action` and `deep` are for what the line leaves open.

        Raises `BadLine`.
        """
        if len(self.text) > _MAX_LINE:
            raise BadLine(f"it is longer than {_MAX_LINE} bytes")
        try:
            text = self.text.decode()
        except UnicodeDecodeError as error:
            raise BadLine("it is not UTF-8") from error
        if not text.startswith("{"):
            return {"action": action, "deep_paths" if deep else "paths": [text]}
        return {"action": action, **_members(text)}


def _members(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is no JSON object: {error}") from error
    unknown = sorted(body.keys() - _MEMBERS)
    if unknown:
        raise BadLine(f"{unknown[0]!r} is none of action, paths and deep_paths")
    if isinstance(body.get("action"), str):
        body["action"] = body["action"].upper()
    members: dict[str, Any] = body
    return members


def lines(file: IO[bytes]) -> Iterator[ReplayLine]:
    """Yield the requests of a file, in constant memory; `#` begins a comment, blank is nothing."""
    return (line for line in _all_lines(file) if line.is_request)


def _all_lines(file: IO[bytes]) -> Iterator[ReplayLine]:
    sequence = 0
    while text := file.readline(_MAX_LINE + 2):
        sequence += 1
        rest = text
        while not rest.endswith(b"\n") and (rest := file.readline(_MAX_LINE)):
            pass
        yield ReplayLine(sequence, text.rstrip(b"\r\n"))


def batches(file: BinaryIO, most: int) -> Iterator[list[ReplayLine]]:
    """Yield the requests of a file in groups of up to `most`, which fit into one request.

    A group ends where a pipe has nothing more right now: what was written is not kept waiting.
    """
    batch: list[ReplayLine] = []
    size = 0
    for line in _all_lines(file):
        if batch and size + len(line.text) > _MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
        if line.is_request:
            batch.append(line)
            size += len(line.text)
        if batch and (len(batch) >= most or not _has_more(file)):
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _has_more(file: BinaryIO) -> bool:
    """Return whether something can be read without waiting for who writes."""
    if not isinstance(file, io.BufferedReader) or not isinstance(file.raw, _Patient):
        return True
    file.raw.patient = False
    try:
        return bool(file.peek(1))
    finally:
        file.raw.patient = True


class _Patient(io.RawIOBase):
    """A pipe or file that waits for bytes only if it is `patient`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.patient = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self.patient and not self._has_bytes():
            return None
        return os.readv(self._descriptor, [buffer])

    def _has_bytes(self) -> bool:
        poll = select.poll()  # unlike select.select, it takes descriptors above 1,023
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))


@contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """Open a file, or stdin for `-`. Raises `CommandFailed`."""
    if source == "-":
        if sys.stdin is None:
            raise CommandFailed("stdin is closed", Exit.USAGE)
        yield io.BufferedReader(_Patient(sys.stdin.fileno()))
        return
    try:
        file = Path(source).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise CommandFailed(f"{source} can't be read: {error.strerror}", Exit.USAGE) from error
    with file:
        yield file if file.seekable() else io.BufferedReader(_Patient(file.fileno()))


def count(file: IO[bytes]) -> int:
    """Return how many requests a file holds, and go back to its beginning."""
    total = sum(1 for _ in lines(file))
    file.seek(0)
    return total
