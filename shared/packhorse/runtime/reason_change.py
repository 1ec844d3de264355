"""Which reasons for waiting are worth a line."""

from collections.abc import Callable

_AGAIN_S = 60.0
"""After that long the same reason is news again."""


class ReasonChange:
    """Knows the last reason; used by one thread. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reason: str | None = None
        self._at = 0.0

    def is_news(self, reason: str) -> bool:
        """Return whether to say it: it is another one than before, or was said a minute ago."""
        now = self._clock()
        if reason == self._reason and now - self._at < _AGAIN_S:
            return False
        self._reason, self._at = reason, now
        return True
