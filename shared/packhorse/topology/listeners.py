"""Hands events to listeners, each in a thread of its own, so that a slow one delays nobody."""

import logging
import threading
import time
from collections.abc import Callable

from packhorse.runtime.metrics import TOPOLOGY_LISTENER_FAILURES
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.mailbox import Mailbox
from packhorse.topology.view import TopologyView

logger = logging.getLogger(__name__)

Listener = Callable[[TopologyEvent], None]
"""Hears events, one after the other; one that raises is logged and hears the next."""


class Listeners:
    """The listeners of one instance; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deliveries: list[_Delivery] = []
        self._view: TopologyView | None = None
        self._stopped = False

    def add(self, listener: Listener) -> None:
        """Tell it INIT as soon as there is a view that holds, then everything else."""
        delivery = _Delivery(listener)
        with self._lock:
            if self._stopped:
                return
            self._deliveries.append(delivery)
            if self._view is not None:
                delivery.post(TopologyEvent(EventKind.INIT, None, self._view))
        delivery.start()

    def remove(self, listener: Listener) -> None:
        """Tell it nothing more; a call under way may still be going on."""
        with self._lock:
            gone = [one for one in self._deliveries if one.listener == listener]
            self._deliveries = [one for one in self._deliveries if one.listener != listener]
        for delivery in gone:
            delivery.drop()

    def post(self, event: TopologyEvent) -> None:
        """Tell all of them; returns at once."""
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
            delivery.close()
        for delivery in ending:
            delivery.join(max(0.0, until - time.monotonic()))


class _Delivery:
    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._mailbox = Mailbox()
        self._changed = threading.Condition()
        self._closed = False
        self._dropped = False
        self._thread = threading.Thread(target=self._run, name="topology-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, event: TopologyEvent) -> None:
        with self._changed:
            self._mailbox.post(event)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def drop(self) -> None:
        with self._changed:
            self._closed = self._dropped = True
            self._changed.notify()

    def join(self, timeout: float) -> None:
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while (event := self._next()) is not None:
            try:
                self.listener(event)
            except Exception:
                logger.exception("a topology listener failed", extra={"kind": event.kind.value})
                TOPOLOGY_LISTENER_FAILURES.inc()

    def _next(self) -> TopologyEvent | None:
        with self._changed:
            while not self._dropped:
                event = self._mailbox.take()
                if event is not None:
                    return event
                if self._closed:
                    return None
                self._changed.wait()
            return None
