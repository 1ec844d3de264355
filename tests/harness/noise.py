"""Text that hardly compresses, for bodies that have to go by reference."""

import base64
import random
import secrets

LARGEST = 1_040_000
"""Characters of one node's properties, which must stay below 1 MiB; compressed, over 800 KiB."""


def noise(characters: int = LARGEST, seed: int | None = None) -> str:
    """Return text for a JSON value, another one each time unless there is a seed."""
    size = characters * 4 // 5
    data = secrets.token_bytes(size) if seed is None else random.Random(seed).randbytes(size)
    return base64.b85encode(data).decode()
