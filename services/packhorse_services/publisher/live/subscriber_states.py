"""The states of all subscribers, computed once a second for all streams that ask."""

from collections.abc import Mapping

from packhorse.clock import Clock
from packhorse_services.publisher.live.events import SubscriberEvent
from packhorse_services.publisher.queues.queue import Queues, SubscriberQueue

_AGE_S = 1.0
FORGOTTEN = "FORGOTTEN"


class States:
    """Asked by the event loop's thread only."""

    def __init__(self, queues: Queues, clock: Clock) -> None:
        self._queues, self._clock = queues, clock
        self._states: Mapping[str, SubscriberEvent] = {}
        self._read_at = -_AGE_S

    def now(self) -> Mapping[str, SubscriberEvent]:
        """Return each subscriber's state, a second old at most."""
        if self._clock.monotonic() - self._read_at >= _AGE_S:
            self._states = {queue.subscriber.name: _state(queue) for queue in self._queues.known()}
            self._read_at = self._clock.monotonic()
        return self._states


class StatesSeen:
    """What one client knows of the subscribers."""

    def __init__(self, subscriber: str | None) -> None:
        self._subscriber = subscriber
        self._seen: dict[str, SubscriberEvent] = {}

    def news(self, states: Mapping[str, SubscriberEvent]) -> list[SubscriberEvent]:
        """Return the states that the client does not know: at first all of them."""
        if self._subscriber is not None:
            states = {name: one for name, one in states.items() if name == self._subscriber}
        gone = [one for name, one in self._seen.items() if name not in states]
        news = [one for name, one in states.items() if self._differs(name, one)]
        self._seen = dict(states)
        return news + [one.model_copy(update={"state": FORGOTTEN}) for one in gone]

    def _differs(self, name: str, state: SubscriberEvent) -> bool:
        seen = self._seen.get(name)
        return seen is None or seen.state != state.state


def _state(queue: SubscriberQueue) -> SubscriberEvent:
    return SubscriberEvent(
        subscriber=queue.subscriber.name,
        state=queue.state.value,
        offset=queue.subscription.offset,
        attempts=queue.subscription.retries,
        last_error=queue.subscription.last_error,
    )
