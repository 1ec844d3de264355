"""Hands events to one handler, in a thread of its own."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packhorse.clock import Clock
from packhorse.jobs.event import Event
from packhorse.jobs.events.filter import EventFilter
from packhorse.jobs.events.mailbox import EventMailbox, Lost
from packhorse.runtime.metrics import EVENT_HANDLER_FAILURES, EVENTS_LOST

logger = logging.getLogger(__name__)

GAP = "packhorse/event/GAP"
"""Topic of the event that says that some were missed; properties `reason`, and `lost` or `since`.

`reason` is `slow`: this handler has lost as many events as `lost` says; or `pruned`: the instance
was away for so long that events were pruned before it had them; it last had all at `since`.
"""

Handler = Callable[[Event], None]
"""Hears events, one after the other; one that raises is logged and hears the next."""


@dataclass(frozen=True, slots=True)
class HandlerState:
    """What became of a handler's events since it was subscribed."""

    name: str
    patterns: Sequence[str]
    waiting: int
    """Events that it has still to do, with the one that it is at."""
    done: int
    failed: int
    """Of those that are done: how many times it raised."""
    lost: int
    """Events for which there was no room, because it was slow."""
    slow: bool
    behind_s: float
    """For how long the oldest event has waited for it, or has been with it."""


class HandlerDelivery:
    """One handler, its mailbox and its thread; safe for threads."""

    def __init__(
        self,
        name: str,
        wanted: EventFilter,
        handler: Handler,
        mailbox: EventMailbox,
        clock: Clock,
        *,
        hears_gaps: bool,
    ) -> None:
        self.name, self._filter, self._handler = name, wanted, handler
        self._mailbox, self._clock, self._hears_gaps = mailbox, clock, hears_gaps
        self._changed = threading.Condition()
        self._closed = self._dropped = False
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name=f"event-{name}"[:60], daemon=True)
        self._thread.start()

    @property
    def patterns(self) -> Sequence[str]:
        """The patterns of what the handler hears."""
        return self._filter.patterns

    def wants(self, event: Event) -> bool:
        """Return whether the handler is to hear it."""
        return (self._hears_gaps and event.topic == GAP) or self._filter.covers(event)

    def post(self, event: Event) -> int:
        """Take an event in, and return its place, for `wait`.

        Waits for room while the handler is not slow; without room the event is lost.
        """
        with self._changed:
            while self._mailbox.full and self._may_wait():
                self._pause()
            lost = self._mailbox.lost
            self._mailbox.post(event, self._clock.monotonic())
            EVENTS_LOST.inc(self._mailbox.lost - lost)
            self._changed.notify_all()
            return self._mailbox.posted

    def wait(self, place: int) -> None:
        """Return when the handler has done everything up to a place, or is slow."""
        with self._changed:
            while self._mailbox.done < place and self._may_wait():
                self._pause()

    def look(self) -> None:
        """Report the handler if it has become slow."""
        with self._changed:
            self._report()
            if self._mailbox.slow:
                self._changed.notify_all()

    def state(self) -> HandlerState:
        """Return how it does."""
        with self._changed:
            box = self._mailbox
            return HandlerState(
                self.name,
                tuple(self._filter.patterns),
                box.waiting,
                box.done,
                self._failed,
                box.lost,
                box.slow,
                box.behind_s(self._clock.monotonic()),
            )

    def close(self, *, drop: bool = False) -> None:
        """Take nothing more in; with `drop` let the handler hear nothing more."""
        with self._changed:
            self._closed, self._dropped = True, self._dropped or drop
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        """Wait for the thread."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _may_wait(self) -> bool:
        """Return whether waiting for the handler can help; itself it never waits for."""
        own = self._thread is threading.current_thread()
        return not (own or self._mailbox.slow or self._dropped or not self._thread.is_alive())

    def _pause(self) -> None:
        rest = self._mailbox.due() - self._clock.monotonic()
        if rest > 0:
            self._changed.wait(min(rest, 3600.0))
        self._report()

    def _report(self) -> None:
        if not self._mailbox.look(self._clock.monotonic()):
            return
        at = self._mailbox.oldest
        logger.warning(
            "the event handler %s is slow at %s, and %d events wait; no sender waits for it until "
            "it has caught up",
            self.name,
            at.topic if isinstance(at, Event) else "a gap",
            self._mailbox.waiting,
            extra={
                "handler": self.name,
                "topic": at.topic if isinstance(at, Event) else "",
                "waiting": self._mailbox.waiting,
            },
        )

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._call_handler(item)
            with self._changed:
                if self._mailbox.finish():
                    logger.info(
                        "the event handler %s has caught up",
                        self.name,
                        extra={"handler": self.name},
                    )
                self._changed.notify_all()

    def _next(self) -> Event | Lost | None:
        with self._changed:
            while not self._dropped:
                item = self._mailbox.take()
                if item is not None or self._closed:
                    return item
                self._changed.wait()
            return None

    def _call_handler(self, item: Event | Lost) -> None:
        if isinstance(item, Lost):
            event = Event(GAP, {"reason": "slow", "lost": item.count})
            logger.warning(
                "the event handler %s was too slow, and has lost %d events", self.name, item.count
            )
            if not self.wants(event):
                return
        else:
            event = item
        try:
            self._handler(event)
        except BaseException:  # also SystemExit: it would end the thread, and hear nothing more
            self._failed += 1
            EVENT_HANDLER_FAILURES.inc()
            logger.exception(
                "the event handler %s failed at %s",
                self.name,
                event.topic,
                extra={"handler": self.name},
            )
