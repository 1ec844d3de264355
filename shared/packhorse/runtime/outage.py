"""A fault that lasts: told when it begins, ever more rarely meanwhile, and when it is over."""

import logging
import threading

from packhorse.clock import Clock, SystemClock

_FIRST_S = 5.0
_LONGEST_S = 300.0


class Outage:
    """Writes one fault's lines; safe for threads.

    While it lasts there is a warning after 5 s, then 10, 20 … at most 5 minutes. What fails again
    more than 5 minutes later is another one, also where nobody said that the first is over.
    """

    def __init__(
        self, logger: logging.Logger, failing: str, working: str, clock: Clock | None = None
    ) -> None:
        """`failing` says what can't be done now, `working` that it can be done again."""
        self._logger, self._failing, self._working = logger, failing, working
        self._clock, self._lock = clock or SystemClock(), threading.Lock()
        self._began: float | None = None
        self._pause_s = self._next = self._last = 0.0

    @property
    def lasts(self) -> bool:
        """Whether it has failed, and not worked since."""
        return self._began is not None

    def failed(self, reason: object) -> None:
        """Take note of one failure, and warn of it when it is time to."""
        now = self._clock.monotonic()
        with self._lock:
            if self._began is None or now - self._last > _LONGEST_S:
                self._began, self._next, self._pause_s = now, now, _FIRST_S
            self._last = now
            if now < self._next:
                return
            self._next = now + self._pause_s
            self._pause_s = min(_LONGEST_S, 2 * self._pause_s)
        self._logger.warning("%s: %s", self._failing, reason)

    def ended(self) -> None:
        """Take note that it works; says so after a failure of the last 5 minutes."""
        now = self._clock.monotonic()
        with self._lock:
            began, self._began = self._began, None
            if began is None or now - self._last > _LONGEST_S:
                return  # it ended at some time since it was last heard of
        self._logger.info("%s, after %.0f s", self._working, now - began)
