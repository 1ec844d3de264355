"""Text that hardly compresses, for bodies that have to go by reference."""

import base64
import json
import random
import secrets

from packhorse.content.node import Binary, Node

LARGEST = 1_040_000
"""Characters of one node's properties, which must stay below 1 MiB; compressed, over 800 KiB."""


def noise(characters: int = LARGEST, seed: int | None = None) -> str:
    """Return text for a JSON value, another one each time unless there is a seed."""
    size = characters * 4 // 5
    data = secrets.token_bytes(size) if seed is None else random.Random(seed).randbytes(size)
    return base64.b85encode(data).decode()


def large_node(path: str, *binaries: Binary) -> Node:
    """Return a node whose package goes by reference."""
    return Node(path, "page", json.dumps({"text": noise(seed=1)}), binaries)
