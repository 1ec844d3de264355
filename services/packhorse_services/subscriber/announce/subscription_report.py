"""What a subscription reports about itself.

The subscription writes, announcements, HTTP and metrics read.
"""

import threading
from dataclasses import dataclass, replace
from typing import Any

from packhorse.runtime.metrics import SUBSCRIBER_OFFSET, SUBSCRIBER_RETRIES, SUBSCRIBER_STATE
from packhorse.wire.messages import SubscriberState, SubscriptionState
from packhorse_services.subscriber.journal.arrivals import Mark

UNKNOWN_HEAD = -1
"""What is in front is not known: nobody looks at the journal."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Up to which offset of which log every status of a subscription is sent, in which epoch.

    A reset sends statuses anew under a higher epoch, so it says nothing of any other one.
    """

    journal_id: str
    epoch: int
    offset: int


class SubscriptionReport:
    """The subscription's present state, and when the record in front was appended."""

    def __init__(self, agent: str) -> None:
        self._lock = threading.Lock()
        self._state = SubscriberState(agent, -1, state=SubscriptionState.WAITING_FOR_LEASE)
        self._head_time_ms = UNKNOWN_HEAD
        self._settled: Settled | None = None
        self._is_placed = False

    @property
    def is_placed(self) -> bool:
        """Whether the subscription has said under this lease where it is, or why it can't."""
        return self._is_placed

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

    def set_settled(self, settled: Settled | None) -> None:
        """Say which statuses are in the journal; None when that is not known."""
        with self._lock:
            self._settled = settled

    def lag_s(self, now_ms: int) -> float | None:
        """Return the age of the package in front, 0 when there is none; by two clocks.

        None when it is not known whether there is one.
        """
        with self._lock:
            since = self._head_time_ms
        if since == UNKNOWN_HEAD:
            return None
        return max(0.0, (now_ms - since) / 1000) if since else 0.0

    def wait_for_lease(self) -> None:
        """Say that another worker may import now; how far that is, nobody here knows."""
        waiting = {"state": SubscriptionState.WAITING_FOR_LEASE}
        self._change(waiting, UNKNOWN_HEAD, is_placed=False)

    def troubled(self, error: str, state: SubscriptionState, *, is_placed: bool) -> None:
        """Say why the subscription can't go on; it is placed unless its position was not read.

        A package that was in front still is; where none was, one may have come.
        """
        changes = {"last_error": error, "state": state}
        head = self._head_time_ms or UNKNOWN_HEAD
        self._change(changes, head, is_placed=self._is_placed or is_placed)

    def update(
        self, *, head_time_ms: int | None = None, mark: Mark | None = None, **changes: Any
    ) -> None:
        """Change some fields of the state; `mark` is the last processed record."""
        if mark is not None:
            changes |= {"offset": mark.offset, "package_id": mark.package_id}
        self._change(changes, head_time_ms)

    def healthy(self, state: SubscriptionState, **changes: Any) -> None:
        """Say that nothing is wrong."""
        self.update(
            state=state, retries=0, last_error="", next_attempt_ms=0, blocked_since_ms=0, **changes
        )

    def _change(
        self, changes: dict[str, Any], head_time_ms: int | None = None, *, is_placed: bool = True
    ) -> None:
        with self._lock:
            before, self._state = self._state, replace(self._state, **changes)
            self._is_placed = is_placed
            if head_time_ms is not None:
                self._head_time_ms = head_time_ms
            self._measure(before)

    def _measure(self, before: SubscriberState) -> None:
        state = self._state
        SUBSCRIBER_OFFSET.labels(state.publisher_agent).set(state.offset)
        SUBSCRIBER_RETRIES.labels(state.publisher_agent).set(state.retries)
        SUBSCRIBER_STATE.labels(state.publisher_agent, before.state.value).set(0)
        SUBSCRIBER_STATE.labels(state.publisher_agent, state.state.value).set(1)
