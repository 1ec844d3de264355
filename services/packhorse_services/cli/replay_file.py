"""A file of requests: one a line, numbered by its line, so that it can be replayed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

_MAX_LINE = 1024 * 1024
_MEMBERS = {"action", "paths", "deep_paths"}


class BadLine(ValueError):
    """A line is no request; the text says why."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that holds a request; `sequence` is its number in the file, from 1."""

    sequence: int
    text: bytes

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


def lines(file: IO[bytes]) -> Iterator[Line]:
    """Yield the requests of a file, in constant memory; `#` begins a comment, blank is nothing."""
    sequence = 0
    while text := file.readline(_MAX_LINE + 2):
        sequence += 1
        rest = text
        while not rest.endswith(b"\n") and (rest := file.readline(_MAX_LINE)):
            pass
        content = text.rstrip(b"\r\n")
        if content.strip() and not content.lstrip().startswith(b"#"):
            yield Line(sequence, content)


def count(file: IO[bytes]) -> int:
    """Return how many requests a file holds, and go back to its beginning."""
    total = sum(1 for _ in lines(file))
    file.seek(0)
    return total
