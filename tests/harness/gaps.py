"""The gap test (R1): writers race, a reader tails, and nothing acknowledged may be missed.

A log whose offsets are given before the commit, but become visible at it, loses records for a
reader that goes on from the last offset it saw. `tests/integration/test_journal_gaps.py` shows
that this checker catches such a log.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.harness.depth import at_depth
from tests.harness.journals import DEADLINE_S

SECONDS = at_depth(2.0, 1.0)
"""How long the writers race."""

Write = Callable[[], int]
"""Append one record and return its offset once it is acknowledged."""

Read = Callable[[int], Sequence[int]]
"""Return offsets above the given one, in the order in which a reader sees them."""


@dataclass
class Race:
    """What the writers were promised and what the reader saw."""

    acknowledged: set[int] = field(default_factory=set)
    seen: list[int] = field(default_factory=list)

    @property
    def missed(self) -> set[int]:
        """Acknowledged, but never shown to the reader."""
        return self.acknowledged - set(self.seen)

    @property
    def in_order(self) -> bool:
        """Whether offsets only rose."""
        return all(one < two for one, two in zip(self.seen, self.seen[1:], strict=False))


def race(writes: Sequence[Write], read: Read, seconds: float = SECONDS) -> Race:
    """Let every writer append for some seconds while a reader tails; then read to the end.

    Where appends take long, the race goes on until there is something to lose.
    """
    result = Race()
    stop = threading.Event()
    writers = [threading.Thread(target=_write, args=(w, result, stop)) for w in writes]
    for writer in writers:
        writer.start()
    try:
        _read_while_they_write(read, result, seconds, 2 * len(writes))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    _read_to_the_end(read, result)
    return result


def _read_while_they_write(read: Read, result: Race, seconds: float, enough: int) -> None:
    began = time.monotonic()
    while (took := time.monotonic() - began) < seconds or len(result.acknowledged) <= enough:
        assert took < DEADLINE_S, f"{len(result.acknowledged)} appends were acknowledged"
        _read(read, result)


def _write(write: Write, result: Race, stop: threading.Event) -> None:
    chance = random.Random(threading.get_ident())
    while not stop.is_set():
        offset = write()
        result.acknowledged.add(offset)
        time.sleep(chance.uniform(0, 0.002))


def _read(read: Read, result: Race) -> None:
    result.seen.extend(read(result.seen[-1] if result.seen else -1))


def _read_to_the_end(read: Read, result: Race) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not result.seen or result.seen[-1] < max(result.acknowledged):
        assert time.monotonic() < deadline, "the reader never came to the end"
        _read(read, result)
