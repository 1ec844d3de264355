"""JSON as a tree that a page can show, however large it is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_LONGEST_TEXT = 2_000
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Branch:
    """A value under its name. `text` is set for one without parts; `left_out` were too many."""

    name: str
    text: str = ""
    kind: str = ""
    parts: Sequence["Branch"] = field(default=())
    left_out: int = 0


def tree(value: Any, most: int = 500) -> Branch:
    """Return a JSON value as branches, of which there are `most` in all."""
    return _grown("", value, iter(range(most)), _DEEPEST)


def _grown(name: str, value: Any, room: Iterator[int], depth: int) -> Branch:
    if isinstance(value, Mapping):
        named, kind = [(str(key), one) for key, one in value.items()], "object"
    elif isinstance(value, list | tuple):
        named, kind = [(str(number), one) for number, one in enumerate(value)], "list"
    else:
        return Branch(name, _text(value), type(value).__name__)
    parts: list[Branch] = []
    for key, one in named:
        if not depth or next(room, None) is None:
            break
        parts.append(_grown(key, one, room, depth - 1))
    return Branch(name, "", kind, parts, len(named) - len(parts))


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
