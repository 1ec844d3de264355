"""Events of one process: whoever subscribes hears them, and a slow one delays nobody for long."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType

import orjson

from packhorse.clock import Clock, SystemClock
from packhorse.errors import Transient
from packhorse.jobs.event import APPLICATION, DISTRIBUTE, Event
from packhorse.jobs.events.delivery import Handler, HandlerDelivery, HandlerState
from packhorse.jobs.events.filter import EventFilter
from packhorse.jobs.events.mailbox import CAPACITY, SLOW_S, EventMailbox
from packhorse.jobs.filters import Template
from packhorse.jobs.names import InvalidProperties, require_properties, require_topic
from packhorse.runtime.metrics import EVENT_SLOW_HANDLERS, report
from packhorse.runtime.periodic import Periodic

_MOST_PATTERNS = 50


class EventNotStored(Transient):
    """An event for all instances was not stored, as far as one knows; it may be delivered later."""


class HandlerRegistration:
    """A handler's place on a bus."""

    def __init__(self, bus: "EventBus", delivery: HandlerDelivery) -> None:
        self._bus, self._delivery = bus, delivery

    def state(self) -> HandlerState:
        """Return how the handler does."""
        return self._delivery.state()

    def cancel(self) -> None:
        """Let it hear nothing more; a call under way may still be going on."""
        self._bus.remove(self._delivery)


class EventBus:
    """A component; safe for threads. Handlers hear events in the order in which they are sent.

    An event's properties are copied as JSON, so what a sender changes afterwards stays its own.
    """

    def __init__(
        self,
        store: Callable[[Event], None] | None = None,
        *,
        slow_s: float = SLOW_S,
        capacity: int = CAPACITY,
        clock: Clock | None = None,
    ) -> None:
        """`store` stores an event for the other instances, or raises `EventNotStored`."""
        self._store, self._clock = store, clock or SystemClock()
        self._slow_s, self._capacity = slow_s, capacity
        report("packhorse_event_", "packhorse_events_")
        self._lock = threading.Lock()
        self._deliveries: tuple[HandlerDelivery, ...] = ()
        self._stopped = False
        self._begins: list[Callable[[], None]] = []
        """What waits for the first handler."""
        self._watch = Periodic("events-watch", slow_s / 5, self._look)

    def subscribe(
        self,
        patterns: str | Sequence[str],
        handler: Handler,
        *,
        where: Sequence[Template] = (),
        gaps: bool = False,
    ) -> HandlerRegistration:
        """Let a handler hear the events whose topics and properties fit, from now on.

        Of several templates one must match. With `gaps` it also hears the events of topic `GAP`.
        Raises `InvalidName` or `InvalidFilter`.
        """
        wanted = EventFilter((patterns,) if isinstance(patterns, str) else tuple(patterns), where)
        delivery = HandlerDelivery(
            getattr(handler, "__qualname__", type(handler).__name__),
            wanted,
            handler,
            EventMailbox(self._capacity, self._slow_s),
            self._clock,
            hears_gaps=gaps,
        )
        self._admit(delivery)
        return HandlerRegistration(self, delivery)

    def _admit(self, delivery: HandlerDelivery) -> None:
        """Deliver events from now on, and begin what waits for the first handler."""
        with self._lock:
            if self._stopped:
                delivery.close(drop=True)
            else:
                self._deliveries += (delivery,)
            begins, self._begins = self._begins, []
        for begin in begins:
            begin()

    def once_heard(self, begin: Callable[[], None]) -> None:
        """Call `begin` once somebody has subscribed: now, or then; until then nobody listens."""
        with self._lock:
            if not self._deliveries:
                self._begins.append(begin)
                return
        begin()

    def remove(self, delivery: HandlerDelivery) -> None:
        """Take a handler's place away."""
        with self._lock:
            self._deliveries = tuple(one for one in self._deliveries if one is not delivery)
        delivery.close(drop=True)

    def send(self, event: Event) -> None:
        """Return when every handler that is not slow has done the event.

        One with the mark `event.distribute` is stored for the other instances before. A handler may
        send: it does not wait for itself. Raises `InvalidName`, `InvalidProperties`, or
        `EventNotStored`, after which nobody here has heard it.
        """
        self._wait_for_handlers(self._hand_out([self._accepted(event)]))

    def post(self, event: Event) -> None:
        """Let handlers hear it soon; where a mailbox is full, that is waited for.

        One with the mark is stored before. Raises as `send` does.
        """
        self._hand_out([self._accepted(event)])

    def deliver(self, events: Iterable[Event]) -> None:
        """Let handlers hear events of other instances; returns as `send` does."""
        self._wait_for_handlers(self._hand_out(events))

    def patterns(self) -> tuple[str, ...]:
        """Return patterns that cover every topic that somebody has subscribed to."""
        wanted = {pattern for one in self._deliveries for pattern in one.patterns}
        many = "**" in wanted or len(wanted) > _MOST_PATTERNS
        return ("**",) if many else tuple(sorted(wanted))

    def handlers(self) -> tuple[HandlerState, ...]:
        """Return how the handlers do, in the order in which they came."""
        return tuple(delivery.state() for delivery in self._deliveries)

    def start(self) -> None:
        """Begin to report slow handlers."""
        self.once_heard(self._watch.start)

    def stop(self, timeout: float) -> None:
        """Let handlers hear what was sent; one that takes longer than `timeout` is left behind."""
        until = time.monotonic() + timeout
        with self._lock:
            self._stopped = True
            ending, self._deliveries, self._begins = self._deliveries, (), []
        for delivery in ending:
            delivery.close()
        self._watch.stop(timeout)
        for delivery in ending:
            delivery.join(max(0.0, until - time.monotonic()))

    def failure(self) -> BaseException | None:
        """Return what ended the reports, which no handler does."""
        return self._watch.failure()

    def _accepted(self, event: Event) -> Event:
        require_topic(event.topic)
        if APPLICATION in event.properties:
            raise InvalidProperties(f"{APPLICATION} is set by packhorse, never by a sender")
        properties = require_properties(dict(event.properties))
        copied = Event(event.topic, MappingProxyType(orjson.loads(orjson.dumps(properties))))
        if DISTRIBUTE in copied.properties:
            if self._store is None:
                raise EventNotStored("this process takes no events to other instances")
            self._store(copied)
        return copied

    def _hand_out(self, events: Iterable[Event]) -> dict[HandlerDelivery, int]:
        """Post events, and return the place of the last one with each handler."""
        places: dict[HandlerDelivery, int] = {}
        deliveries = self._deliveries
        for event in events:
            for delivery in deliveries:
                if delivery.wants(event):
                    places[delivery] = delivery.post(event)
        return places

    def _wait_for_handlers(self, places: dict[HandlerDelivery, int]) -> None:
        for delivery, place in places.items():
            delivery.wait(place)

    def _look(self) -> None:
        for delivery in self._deliveries:
            delivery.look()
        EVENT_SLOW_HANDLERS.set(sum(state.slow for state in self.handlers()))
