"""The one thread of a process that publishes: it gathers waiting requests into groups.

While one group is on its way to the journal the next one gathers, so the busier the publisher,
the larger its groups and the less each request costs.
"""

import logging
import queue
import threading
from collections.abc import Sequence

import psycopg

from packhorse.clock import Clock
from packhorse.errors import PackhorseError, Transient
from packhorse.runtime.lifecycle import Worker
from packhorse_services.publisher.distribute import DistributionRequest
from packhorse_services.publisher.idempotency import CallerKey, KeyInProgress, key_of
from packhorse_services.publisher.pending import Pending
from packhorse_services.publisher.publishing import Publishing

logger = logging.getLogger(__name__)

_GROUP = 64
_WAITING = 2_000
_IDLE_S = 10.0
_BACKLOG_S = 1.0
_RETRY_S = 0.25


class PublisherBusy(Transient):
    """Too many requests wait already, or this one waited too long; try again later."""


class PublisherStopping(Transient):
    """The publisher is going away; send the request again, to another one."""


class Exporter:
    """A component that publishes what is submitted. `submit` may be called by any thread."""

    def __init__(self, publishing: Publishing, clock: Clock, *, give_up_s: float = 25.0) -> None:
        self._publishing, self._clock, self._give_up_s = publishing, clock, give_up_s
        self._waiting: queue.Queue[Pending | None] = queue.Queue()
        self._keys: set[CallerKey] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._worker = Worker("exporter", self._run)

    def submit(self, request: DistributionRequest) -> Pending:
        """Take a request; its future gets an `Accepted` or the reason why not.

        Cancelling the future succeeds until the export begins. Raises `PublisherBusy`,
        `PublisherStopping`, or `KeyInProgress` while the same key is on its way here.
        """
        if self._waiting.qsize() >= _WAITING:
            raise PublisherBusy("too many requests wait already; try again later")
        pending = Pending(request)
        with self._lock:
            if self._closed:
                raise _stopping()
            self._reserve(pending)
            self._waiting.put(pending)
        return pending

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """Publish the group that is under way, refuse the rest, end the thread."""
        self._worker.ask_to_end()
        self._publishing.stop()
        self._waiting.put(None)
        self._worker.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what the thread died of."""
        return self._worker.failure()

    def _reserve(self, pending: Pending) -> None:
        key = key_of(pending.request)
        if key is None:
            return
        if key in self._keys:
            raise KeyInProgress("a request with this Idempotency-Key is being published")
        self._keys.add(key)
        pending.future.add_done_callback(lambda _: self._release(key))

    def _release(self, key: CallerKey) -> None:
        with self._lock:
            self._keys.discard(key)

    def _run(self, stopping: threading.Event) -> None:
        pause = self._settle()
        while not stopping.is_set():
            group = self._gather(pause)
            if group:
                self._publish(group, stopping)
                pause = _BACKLOG_S
            elif not stopping.is_set():
                pause = self._settle()
        with self._lock:
            self._closed = True
        for pending in self._drain():
            if pending.future.set_running_or_notify_cancel():
                pending.fail(_stopping())
        self._publishing.close()

    def _gather(self, timeout: float) -> list[Pending]:
        """Wait for a request, and take all that wait with it."""
        try:
            first = self._waiting.get(timeout=timeout)
        except queue.Empty:
            return []
        group = [first, *self._drain(_GROUP - 1)]
        return [p for p in group if p is not None and p.future.set_running_or_notify_cancel()]

    def _drain(self, limit: int = _WAITING * 2) -> list[Pending]:
        drained: list[Pending] = []
        while len(drained) < limit:
            try:
                pending = self._waiting.get_nowait()
            except queue.Empty:
                break
            if pending is not None:
                drained.append(pending)
        return drained

    def _publish(self, group: Sequence[Pending], stopping: threading.Event) -> None:
        """Publish until every request has its answer, or until it is no use."""
        give_up = self._clock.monotonic() + self._give_up_s
        unanswered = list(group)
        while unanswered:
            error = self._try(unanswered)
            unanswered = [pending for pending in unanswered if not pending.future.done()]
            if error is None:
                continue
            if self._clock.monotonic() > give_up or self._clock.wait(stopping, _RETRY_S):
                for pending in unanswered:
                    pending.fail(error)
                return

    def _try(self, group: Sequence[Pending]) -> Exception | None:
        try:
            self._publishing.publish(group)
        except (Transient, psycopg.OperationalError, psycopg.InterfaceError) as error:
            logger.warning("publishing failed", extra={"requests": len(group), "error": str(error)})
            return error
        except Exception as error:
            logger.exception("publishing failed", extra={"requests": len(group)})
            for pending in group:
                pending.fail(error)
        return None

    def _settle(self) -> float:
        """Look after what an earlier holder left; returns when to look again, in seconds."""
        try:
            settled = self._publishing.settle()
        except (PackhorseError, psycopg.Error) as error:
            logger.warning("the outbox could not be settled", extra={"error": str(error)})
            settled = False
        return _IDLE_S if settled else _BACKLOG_S


def _stopping() -> PublisherStopping:
    return PublisherStopping("this publisher is going away; send the request again")
