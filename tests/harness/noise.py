"""Text that hardly compresses, for bodies that have to go by reference."""

import json
import random
import secrets
import string

from packhorse.content.node import Binary, Node

LARGEST = 1_040_000
"""Characters of one node's properties, which must stay below 1 MiB; compressed, over 800 KiB."""
_PLAIN = "".join(sorted({*string.printable[:94]} - {*'"\\'}))
"""What JSON has for itself."""
_TO_PLAIN = bytes(ord(_PLAIN[number % len(_PLAIN)]) for number in range(256))


def noise(characters: int = LARGEST, seed: int | None = None) -> str:
    """Return text for a JSON value, another one each time unless there is a seed."""
    some = secrets.token_bytes if seed is None else random.Random(seed).randbytes
    return some(characters).translate(_TO_PLAIN).decode()


def large_node(path: str, *binaries: Binary) -> Node:
    """Return a node whose package goes by reference."""
    return Node(path, "page", json.dumps({"text": noise(seed=1)}), binaries)
