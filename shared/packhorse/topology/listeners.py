"""Hands events to listeners, each in a thread of its own, so that a slow one delays nobody."""

import logging
import threading
import time
from collections.abc import Callable

from packhorse.runtime.metrics import TOPOLOGY_LISTENER_FAILURES
from packhorse.runtime.threads import Threads
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.view import TopologyView

logger = logging.getLogger(__name__)

Listener = Callable[[TopologyEvent], None]
"""Hears events, one after the other; one that raises is logged and hears the next."""


class Listeners:
    """The listeners of one instance; safe for threads."""

    def __init__(self) -> None:
        self._lock, self._threads = threading.Lock(), Threads("topology-listener")
        self._deliveries: list[_Delivery] = []
        self._view: TopologyView | None = None
        self._stopped = False

    def add(self, listener: Listener) -> None:
        """Send it INIT as soon as there is a view that holds, then everything else."""
        delivery = _Delivery(listener, self._threads)
        with self._lock:
            if self._stopped:
                return
            self._deliveries.append(delivery)
            if self._view is not None:
                delivery.post(TopologyEvent(EventKind.INIT, None, self._view))

    def remove(self, listener: Listener) -> None:
        """Notify it no more; a call under way may still be going on."""
        with self._lock:
            gone = [one for one in self._deliveries if one.listener == listener]
            self._deliveries = [one for one in self._deliveries if one.listener != listener]
        for delivery in gone:
            delivery.drop()

    def post(self, event: TopologyEvent) -> None:
        """Notify all of them; returns at once."""
        with self._lock:
            self._view = event.new
            for delivery in self._deliveries:
                delivery.post(event)

    def stop(self, timeout: float) -> None:
        """Let them hear what was posted; one that takes longer than `timeout` seconds is left."""
        until = time.monotonic() + timeout
        with self._lock:
            self._stopped = True
            ending, self._deliveries = self._deliveries, []
        for delivery in ending:
            delivery.join(max(0.0, until - time.monotonic()))


class _Delivery:
    """One listener and its mailbox, with a thread for as long as there is something to deliver."""

    def __init__(self, listener: Listener, threads: Threads) -> None:
        self.listener, self._threads = listener, threads
        self._mailbox = ViewMailbox()
        self._changed = threading.Condition()
        self._dropped = self._reports = False
        self._teller = 0

    def post(self, event: TopologyEvent) -> None:
        with self._changed:
            self._mailbox.post(event)
            if not self._reports:
                self._threads.submit(self._run)
                self._reports = True

    def drop(self) -> None:
        with self._changed:
            self._dropped = True

    def join(self, timeout: float) -> None:
        """Wait until it has got all; a listener that does so waits for nothing."""
        with self._changed:
            if self._teller != threading.get_ident():
                self._changed.wait_for(lambda: not self._reports, timeout)

    def _run(self) -> None:
        self._teller = threading.get_ident()
        while (event := self._next()) is not None:
            try:
                self.listener(event)
            except BaseException:  # also SystemExit: it would hear nothing more
                logger.exception("a topology listener failed", extra={"kind": event.kind.value})
                TOPOLOGY_LISTENER_FAILURES.inc()

    def _next(self) -> TopologyEvent | None:
        with self._changed:
            event = None if self._dropped else self._mailbox.take()
            if event is None:
                self._reports, self._teller = False, 0
                self._changed.notify_all()
            return event


class ViewMailbox:
    """Joins the events that one listener was too slow for: a CHANGING and the newest view.

    Each event that is taken fits what was taken before: INIT comes first and once, no CHANGED
    without a CHANGING, and `old` is the view that this listener knows. Not safe for threads.
    """

    def __init__(self) -> None:
        self._known: TopologyView | None = None
        self._reported_changing = False
        self._changing = False
        self._newest: TopologyView | None = None

    def post(self, event: TopologyEvent) -> None:
        """Take in the next event of the flow."""
        self._newest = event.new
        if event.kind is EventKind.CHANGING and self._known is not None:
            self._changing = not self._reported_changing

    def take(self) -> TopologyEvent | None:
        """Return what the listener must hear next; None when it knows all."""
        if self._changing:
            self._changing, self._reported_changing = False, True
            return TopologyEvent(EventKind.CHANGING, self._known, None)
        newest, self._newest = self._newest, None
        if newest is None or (newest == self._known and not self._reported_changing):
            return None
        event = TopologyEvent(self._kind(), self._known, newest)
        self._known, self._reported_changing = newest, False
        return event

    def _kind(self) -> EventKind:
        if self._known is None:
            return EventKind.INIT
        return EventKind.CHANGED if self._reported_changing else EventKind.PROPERTIES_CHANGED
