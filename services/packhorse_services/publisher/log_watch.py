"""Whether the package topic is still the log that the slot's row knows."""

import time

from packhorse.messaging.api import Journal

_ASK_S = 5.0


class LogWatch:
    """Asks for the log's identity, though not at each append; used by holders of the append slot.

    A log that is made anew begins at 0, so an offset that is not above the last one asks at once.
    """

    def __init__(self, journal: Journal, topic: str) -> None:
        self._journal, self._topic = journal, topic
        self._newest, self._asked_at = -1, -_ASK_S

    def identity(self) -> str:
        """Return the log's identity. Raises what `Journal.identity` raises."""
        return self._journal.identity(self._topic)

    def is_suspicious(self, oldest: int, newest: int) -> bool:
        """Tell whether to ask for the identity, now that records have got offsets from..to."""
        now, before = time.monotonic(), self._newest
        self._newest = newest
        if oldest > before and now < self._asked_at + _ASK_S:
            return False
        self._asked_at = now
        return True
