"""Properties that a subscriber leaves out, by their names; the others' texts stay as they are."""

import json
import re
from collections.abc import Callable, Sequence

from packhorse.content.node import InvalidNode, InvalidPath, Node, has_control

_REST = "*"
"""At the end of a name it stands for any rest."""

_OPENING, _FEW = 3, 10
"""Characters with which names begin, and how many such beginnings are looked for one by one."""

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def check_names(names: Sequence[str]) -> None:
    """Raise `InvalidPath` for what names no property."""
    for name in names:
        if not name.rstrip(_REST) or _REST in name[:-1]:
            raise InvalidPath(f"{name!r} names no property; a * may end a name, alone it may not")
        if has_control(name) or not {'"', "\\"}.isdisjoint(name):
            raise InvalidPath(f"{name!r} holds a quote, a backslash or a control character")


def as_matched(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that are whole, and the beginnings of those with any rest."""
    whole = [name for name in names if not name.endswith(_REST)]
    return whole, [name[:-1] for name in names if name.endswith(_REST)]


def naming(names: Sequence[str]) -> Callable[[str], bool]:
    """Return what says whether a property is one of these names."""
    whole, beginnings = as_matched(names)
    held, begins = frozenset(whole), tuple(beginnings)
    return lambda name: name in held or name.startswith(begins)


def _looking_for(names: Sequence[str]) -> Callable[[str], bool]:
    """Return a cheap look whether the text of an object may have a member of these names.

    Names in which something is escaped are not seen.
    """
    whole, beginnings = as_matched(names)
    held, begins = frozenset(whole), tuple(beginnings)
    opened = {f'"{name[:_OPENING]}' for name in (*whole, *beginnings)}

    def may_hold(text: str) -> bool:
        if len(opened) <= _FEW and not any(one in text for one in opened):
            return False
        parts = text.split('"')  # each name is one of them, alone
        return not held.isdisjoint(parts) or (
            bool(begins) and any(part.startswith(begins) for part in parts)
        )

    return may_hold


def leaving_out(names: Sequence[str]) -> Callable[[Node], Node]:
    """Return what gives a node without the properties of these names, binary ones too.

    It raises `InvalidNode` for properties that are no JSON object.
    """
    may_hold, named = _looking_for(names), naming(names)

    def without(node: Node) -> Node:
        text, binaries = node.properties, node.binaries
        if may_hold(text) or ("\\" in text and ("\\u" in text or "\\/" in text)):
            text = _without(text, named)
        if binaries and any(named(one.name) for one in binaries):
            binaries = tuple(one for one in binaries if not named(one.name))
        if text is node.properties and binaries is node.binaries:
            return node
        return Node(node.path, node.type, text, binaries)

    return without


def _without(text: str, named: Callable[[str], bool]) -> str:
    """Return an object's text without some members; what stays is as it was, numbers too."""
    try:
        members = _members(text)
    except (ValueError, IndexError, RecursionError) as error:
        raise InvalidNode(f"the properties can't be read: {error}") from error
    if not any(named(name) for name, _ in members):
        return text
    return "{" + ", ".join(member for name, member in members if not named(name)) + "}"


def _members(text: str) -> list[tuple[str, str]]:
    """Return the members of an object with their texts. Raises `ValueError` or `IndexError`."""
    members: list[tuple[str, str]] = []
    at = _behind(text, 0, "{")
    while text[at] != "}":
        if members:
            at = _behind(text, at, ",")
        first = at
        name, at = _DECODER.raw_decode(text, at)
        if not isinstance(name, str):
            raise ValueError("a member's name is no text")
        _, at = _DECODER.raw_decode(text, _behind(text, at, ":"))
        members.append((name, text[first:at]))
        at = _space(text, at)
    if _space(text, at + 1) != len(text):
        raise ValueError("something follows the object")
    return members


def _behind(text: str, at: int, sign: str) -> int:
    at = _space(text, at)
    if text[at] != sign:
        raise ValueError(f"a {sign} is missing")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
