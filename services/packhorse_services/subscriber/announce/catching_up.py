"""Whether a subscriber has caught up since its start: then it may be sent readers (as in Sling).

Once it has it stays so. Otherwise one package that no subscriber can import would take all of
them out of service at once.
"""

import enum
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from packhorse.clock import Clock
from packhorse.runtime.metrics import SUBSCRIBER_READY, SUBSCRIBER_READY_SECONDS
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.readiness import NotReady
from packhorse.wire.messages import SubscriptionState
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport

_LOOK_S = 0.5
_STARTED, _CATCHING_UP = "STARTED", "CATCHING_UP"
_IDLE, _LATENCY, _FORCE = "IDLE", "LATENCY", "FORCE"


class ReadyWhen(enum.Enum):
    """What `/readyz` waits for, beside the checks of database, journal and blobs."""

    STARTED = "started"
    CAUGHT_UP = "caught-up"


@dataclass(frozen=True, slots=True)
class ReadySettings:
    """When every subscription counts as caught up."""

    when: ReadyWhen = ReadyWhen.STARTED
    idle_s: float = 10.0
    """Nothing was left to import for so long."""
    latency_s: float = 0.0
    """Or the package in front entered the journal no longer ago than this; 0: never."""
    force_s: float = 0.0
    """So long after the start it is ready in any case; 0: never."""


class CatchingUp(Periodic):
    """A component that looks at the subscriptions; `check` may be called by any thread."""

    def __init__(
        self, reports: Sequence[SubscriptionReport], settings: ReadySettings, clock: Clock
    ) -> None:
        super().__init__(
            "catching-up", _LOOK_S, self.look, clock=clock, done=lambda: self._why_not is None
        )
        self._reports, self._settings = reports, settings
        self._idle_since: dict[SubscriptionReport, float] = {}
        self._lock = threading.Lock()
        self._began = clock.monotonic()
        self._why_not: str | None = _CATCHING_UP
        self._shown = ""

    def start(self) -> None:
        """Begin; the time until it is ready counts from here."""
        self._began = self._clock.monotonic()
        self.look()
        super().start()

    def check(self) -> None:
        """Raise `NotReady` with the reason until all subscriptions have caught up."""
        if self._why_not is not None:
            raise NotReady(self._why_not)

    def look(self) -> None:
        """Look at the subscriptions once."""
        with self._lock:
            if self._why_not is None:
                return
            now = self._clock.monotonic()
            ready, reason = self._judged(now)
            if self._shown not in ("", reason):
                SUBSCRIBER_READY.remove(self._shown)
            SUBSCRIBER_READY.labels(reason).set(int(ready))
            self._shown = reason
            if ready:
                SUBSCRIBER_READY_SECONDS.labels(reason).set(now - self._began)
            self._why_not = None if ready else reason

    def _judged(self, now: float) -> tuple[bool, str]:
        settings = self._settings
        if settings.when is ReadyWhen.STARTED:
            return True, _STARTED
        if 0 < settings.force_s <= now - self._began:
            return True, _FORCE
        judged = [self._subscription(report, now) for report in self._reports]
        waiting = [reason for ready, reason in judged if not ready]
        if waiting:  # what needs an operator is reported before what passes by itself
            return False, min(waiting, key=lambda reason: (reason == _CATCHING_UP, reason))
        return True, _LATENCY if (True, _LATENCY) in judged else _IDLE

    def _subscription(self, report: SubscriptionReport, now: float) -> tuple[bool, str]:
        state = report.state.state
        if state is not SubscriptionState.IDLE:
            self._idle_since.pop(report, None)
        if state is SubscriptionState.IDLE:
            since = self._idle_since.setdefault(report, now)
            return (True, _IDLE) if now - since >= self._settings.idle_s else (False, _CATCHING_UP)
        if state is not SubscriptionState.RUNNING:
            return False, state.value
        lag_s = report.lag_s(self._clock.wall_ms())
        if lag_s and lag_s <= self._settings.latency_s:
            return True, _LATENCY
        return False, _CATCHING_UP
