"""Nodes as rows: the columns that are read, and the JSON that holds a node's binaries."""

from typing import Any

import orjson

from packhorse.content.node import Binary, InvalidNode, Node

COLUMNS = "path, type, properties::text, binaries::text"
"""What `node_of` reads, in this order."""

Row = tuple[str, str, str, str]

NO_BINARIES = "{}"
_DIGEST_KIND = "sha256:"


def node_of(row: Row) -> Node:
    """Return the node of a row; its binaries come in the order of their names."""
    path, type_, properties, binaries = row
    return Node(path, type_, properties, parse_binaries(binaries))


def parse_binaries(text: str | bytes) -> tuple[Binary, ...]:
    """Return the binaries of `{name: {digest, length, media_type}}`, by name.

    Raises `InvalidNode` when the text says anything else.
    """
    if text == NO_BINARIES:
        return ()
    try:
        found: dict[str, dict[str, Any]] = orjson.loads(text)
        return tuple(
            Binary(
                name,
                reference["digest"].removeprefix(_DIGEST_KIND),
                reference["length"],
                reference["media_type"],
            )
            for name, reference in sorted(found.items())
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidNode("binaries are not {name: {digest, length, media_type}}") from error


def format_binaries(binaries: tuple[Binary, ...]) -> str:
    """Return the JSON that `parse_binaries` reads."""
    if not binaries:
        return NO_BINARIES
    return orjson.dumps(
        {
            binary.name: {
                "digest": _DIGEST_KIND + binary.sha256,
                "length": binary.length,
                "media_type": binary.media_type,
            }
            for binary in binaries
        }
    ).decode()
