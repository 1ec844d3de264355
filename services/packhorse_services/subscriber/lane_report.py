"""What a lane tells of itself: the lane writes, announcements, HTTP and metrics read."""

import threading
from dataclasses import dataclass, replace
from typing import Any

from packhorse.runtime.metrics import SUBSCRIBER_OFFSET, SUBSCRIBER_RETRIES, SUBSCRIBER_STATE
from packhorse.wire.messages import LaneState, SubscriberState


@dataclass(frozen=True, slots=True)
class Settled:
    """Up to which offset of which log every status is sent, as the lane stood in that epoch.

    A reset sends statuses anew under a higher epoch, so it says nothing of any other one.
    """

    journal_id: str
    epoch: int
    offset: int


class LaneReport:
    """The lane's present state, and when the record in front was appended."""

    def __init__(self, agent: str) -> None:
        self._lock = threading.Lock()
        self._state = SubscriberState(agent, -1, state=LaneState.WAITING_FOR_LEASE)
        self._head_time_ms = 0
        self._settled: Settled | None = None

    @property
    def state(self) -> SubscriberState:
        """The state as an announcement carries it."""
        with self._lock:
            state, settled = self._state, self._settled
            if settled is None or (settled.journal_id, settled.epoch) != (
                state.journal_id,
                state.epoch,
            ):
                return replace(state, settled_offset=-1)
            return replace(state, settled_offset=min(settled.offset, state.offset))

    def settle(self, settled: Settled | None) -> None:
        """Say which statuses are in the journal; None when that is not known."""
        with self._lock:
            self._settled = settled

    def lag_s(self, now_ms: int) -> float:
        """Return the age of the package in front, 0 when there is none; by two clocks."""
        with self._lock:
            since = self._head_time_ms
        return max(0.0, (now_ms - since) / 1000) if since else 0.0

    def update(self, *, head_time_ms: int | None = None, **changes: Any) -> None:
        """Change some fields of the state."""
        with self._lock:
            before, self._state = self._state, replace(self._state, **changes)
            if head_time_ms is not None:
                self._head_time_ms = head_time_ms
            self._measure(before)

    def healthy(self, state: LaneState, **changes: Any) -> None:
        """Say that nothing is wrong."""
        self.update(
            state=state, retries=0, last_error="", next_attempt_ms=0, blocked_since_ms=0, **changes
        )

    def _measure(self, before: SubscriberState) -> None:
        state = self._state
        SUBSCRIBER_OFFSET.labels(state.publisher_agent).set(state.offset)
        SUBSCRIBER_RETRIES.labels(state.publisher_agent).set(state.retries)
        SUBSCRIBER_STATE.labels(state.publisher_agent, before.state.value).set(0)
        SUBSCRIBER_STATE.labels(state.publisher_agent, state.state.value).set(1)
