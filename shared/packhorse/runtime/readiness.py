"""Whether a process can do its work now: named checks, run in threads, remembered for a second."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from packhorse.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

Check = Callable[[], None]
"""Raises when the process is not ready."""

_LIVE_S = 1.0
_TIMEOUT_S = 5.0


class Readiness:
    """Runs the checks at most once a second, however many ask; a check that hangs has failed."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        clock: Clock | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._checks = dict(checks)
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._results: dict[str, str] = {}
        self._known_at: float | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def add(self, name: str, check: Check) -> None:
        """Add a check; it counts from the next refresh on."""
        self._checks[name] = check

    async def failures(self) -> dict[str, str]:
        """Return every check's name, with an empty text or the kind of error that it raised."""
        now = self._clock.monotonic()
        if self._known_at is None or now - self._known_at >= _LIVE_S:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(self._refresh())
            await asyncio.shield(self._refreshing)
        return self._results

    async def _refresh(self) -> None:
        for name, check in self._checks.items():
            if name not in self._running:  # one that still hangs is not started again
                self._running[name] = asyncio.create_task(asyncio.to_thread(check))
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._timeout_s)
        self._results = {name: self._result(name) for name in self._checks}
        self._known_at = self._clock.monotonic()

    def _result(self, name: str) -> str:
        task = self._running[name]
        if not task.done():
            return "no answer in time"
        del self._running[name]
        error = task.exception()
        if error is None:
            return ""
        logger.warning("not ready", extra={"check": name, "error": str(error)})
        return type(error).__name__
