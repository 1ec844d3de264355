"""Ending before the next part, when somebody interrupts or cancels."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from packhorse_services.pipeline.bulk.errors import BulkCancelled, BulkStopped
from packhorse_services.pipeline.bulk.state import BulkState


class Stopping:
    """Says whether to end. Signals are heeded between parts, so that no answer is lost."""

    def __init__(self, state: BulkState) -> None:
        self._state = state
        self._interrupted = False

    def check(self) -> None:
        """Raise `BulkStopped` once somebody has interrupted this run, `BulkCancelled` the work."""
        if self._interrupted:
            raise BulkStopped("interrupted")
        if self._state.cancelled():
            raise BulkCancelled("cancelled")

    @contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as the wish to end; a second one ends at once."""
        before = {
            number: signal.signal(number, self._interrupt)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
