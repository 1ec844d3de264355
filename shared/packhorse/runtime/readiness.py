"""Whether a process can do its work now: named checks, run in threads, remembered for a second.

A failure is remembered for less: who starts a program waits for its end.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from packhorse.clock import Clock, SystemClock
from packhorse.runtime.outage import Outage
from packhorse.runtime.threads import Threads

logger = logging.getLogger(__name__)

Check = Callable[[], None]
"""Raises when the process is not ready."""

_NONE: Mapping[str, Check] = {}


class NotReady(Exception):
    """Raised by a check whose text is a code that anybody may be shown."""


_LIVE_S, _FAILED_LIVE_S = 1.0, 0.1
_TIMEOUT_S = 5.0
_LATE = "no answer in time"
_WARNING_S = 0.25
"""A probe waits no longer than this for what can't make the process unready."""


class Readiness:
    """Runs the checks, however many ask, once a second, and more often while it is not ready.

    A check that hangs has failed. The log says when a check begins to fail, now and then meanwhile,
    and when it works again.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        clock: Clock | None = None,
        *,
        warnings: Mapping[str, Check] = _NONE,
        timeout_s: float = _TIMEOUT_S,
        warning_s: float = _WARNING_S,
    ) -> None:
        """Take `warnings` for checks that are shown, and do not make the process unready."""
        self._checks, self._warnings = dict(checks), dict(warnings)
        self._timeout_s, self._warning_s = timeout_s, warning_s
        self._clock = clock or SystemClock()
        self._threads = Threads("ready")
        self._running: dict[str, asyncio.Future[None]] = {}
        self._results: dict[str, str] = {}
        self._late: set[str] = set()
        self._outages: dict[str, Outage] = {}
        self._known_at: float | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def add(self, name: str, check: Check) -> None:
        """Add a check; it counts from the next refresh on."""
        self._checks[name] = check

    def add_warning(self, name: str, check: Check) -> None:
        """Add a check that is shown, and does not make the process unready."""
        self._warnings[name] = check

    async def failures(self) -> dict[str, str]:
        """Return every check's name, with an empty text or the kind of error that it raised."""
        unready = any(self._results.get(name) for name in self._checks)
        live_s = _FAILED_LIVE_S if unready else _LIVE_S
        if self._known_at is None or self._clock.monotonic() - self._known_at >= live_s:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(self._refresh())
            await asyncio.shield(self._refreshing)
        return {name: self._results[name] for name in self._checks}

    async def warnings(self) -> dict[str, str]:
        """Return what is wrong though the process can do its work: the check's name and error."""
        await self.failures()
        return {name: error for name in self._warnings if (error := self._results[name])}

    async def _refresh(self) -> None:
        await self._run(self._checks, self._timeout_s)
        await self._run(self._warnings, self._warning_s)
        self._results = {name: self._result(name) for name in (*self._warnings, *self._checks)}
        self._known_at = self._clock.monotonic()

    async def _run(self, checks: Mapping[str, Check], timeout_s: float) -> None:
        for name, check in checks.items():
            if name in self._running and self._running[name].done():  # too late for who asked
                self._running.pop(name).exception()  # else asyncio says that nobody looked at it
                self._late.discard(name)
            if name not in self._running:  # one that still hangs is not started again
                self._running[name] = asyncio.wrap_future(self._threads.submit(check))
        if checks:
            await asyncio.wait([self._running[name] for name in checks], timeout=timeout_s)

    def _result(self, name: str) -> str:
        task, outage = self._running[name], self._outage(name)
        if not task.done():
            self._late.add(name)
            outage.failed(_LATE)
            return _LATE
        del self._running[name]
        error = task.exception()
        if error is not None:
            self._late.discard(name)
            outage.failed(str(error) or type(error).__name__)
            return str(error) if isinstance(error, NotReady) else type(error).__name__
        if name in self._late:  # the next one shows whether it answers in time again
            self._late.remove(name)
        else:
            outage.ended()
        return ""

    def _outage(self, name: str) -> Outage:
        if name not in self._outages:
            failing = (
                f"not ready, for the check {name} fails"
                if name in self._checks
                else f"the check {name} fails, and the process stays ready"
            )
            works = f"the check {name} works again"
            self._outages[name] = Outage(logger, failing, works, self._clock)
        return self._outages[name]
