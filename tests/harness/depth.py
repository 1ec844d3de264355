"""How many examples a model or a property is played with: few in the gate, all in `make chaos`."""

import os

_GATE_SHARE = 3
_LEAST = 8


def examples(all_of_them: int) -> int:
    """Return how many of so many examples to play; `TEST_DEPTH=full` plays all of them."""
    if os.environ.get("TEST_DEPTH") == "full":
        return all_of_them
    return min(all_of_them, max(_LEAST, all_of_them // _GATE_SHARE))
