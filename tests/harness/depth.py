"""How many examples a model or a property is played with: few in the gate, all in `make chaos`."""

import os
from typing import TypeVar

T = TypeVar("T")

_GATE_SHARE = 5
_LEAST = 6


def examples(all_of_them: int) -> int:
    """Return how many of so many examples to play; `TEST_DEPTH=full` plays all of them."""
    return at_depth(all_of_them, min(all_of_them, max(_LEAST, all_of_them // _GATE_SHARE)))


def at_depth(full: T, gate: T) -> T:
    """Return `full` where `TEST_DEPTH=full`, else what is enough for the gate."""
    return full if os.environ.get("TEST_DEPTH") == "full" else gate
