"""Work that is done every so many seconds, and at once when somebody asks."""

import logging
import threading
from collections.abc import Callable

from packhorse.clock import Clock, SystemClock
from packhorse.db.connect import AWAY
from packhorse.errors import Transient
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.metrics import PERIODIC_FAILURES
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)

_PASSING = (*AWAY, Transient, TimeoutError)
"""What says that something is away: a traceback would tell of no fault of ours."""


class Periodic(WorkerComponent):
    """A component that calls `action` every `interval_s` seconds after the last call ended.

    The first call comes after one interval, or at the start with `at_once`. An action that fails
    is counted and logged, ever more rarely while a database or a journal is away, and the loop goes
    on, until `done` says that there is nothing more to do. What was asked for before the end is
    done before it.
    """

    def __init__(
        self,
        name: str,
        interval_s: float,
        action: Callable[[], object],
        *,
        clock: Clock | None = None,
        at_once: bool = False,
        done: Callable[[], bool] = lambda: False,
    ) -> None:
        self._name, self._interval_s, self._action = name, interval_s, action
        self._clock = clock or SystemClock()
        what = f"the periodic work {name}"
        self._outage = Outage(
            logger, f"{what} can't be done now", f"{what} is done again", self._clock
        )
        self._wake, self._asked = threading.Event(), threading.Event()
        if at_once:
            self._wake.set()
        self._done = done
        self._worker = Worker(name, self._run, wake=self._wake.set, may_end=True)

    def kick(self) -> None:
        """Call `action` as soon as possible; kicks during a call become one more call."""
        self._asked.set()
        self._wake.set()

    def _run(self, stopping: threading.Event) -> None:
        while not self._done():
            self._clock.wait(self._wake, self._interval_s)
            self._wake.clear()
            if stopping.is_set():
                break
            self._call()
        if self._asked.is_set():
            self._call()

    def _call(self) -> None:
        self._asked.clear()
        try:
            self._action()
            self._outage.ended()
        except Exception as error:
            PERIODIC_FAILURES.labels(self._name).inc()
            if isinstance(error, _PASSING):
                self._outage.failed(str(error) or type(error).__name__)
            else:
                logger.exception("the periodic work %s failed", self._name)
