"""A line of requests and the one thread that publishes them, in groups.

While one group is on its way to the journal the next one gathers, so the busier the publisher,
the larger its groups and the less each request costs.
"""

import logging
import queue
import threading
from collections.abc import Sequence
from typing import Protocol

import psycopg

from packhorse.clock import Clock
from packhorse.db.connect import AWAY
from packhorse.errors import PackhorseError, Transient
from packhorse.runtime.lifecycle import Worker
from packhorse_services.publisher.outbox.request import Pending

logger = logging.getLogger(__name__)

_GROUP = 64
_WAITING = 2_000
_IDLE_S = 10.0
_BACKLOG_S = 1.0
_RETRY_S = 0.25
NO_PROGRESS_S = 180.0
"""Longer than anything that a step of a group may wait for: the lock, Postgres, Kafka, a blob."""


class TooManyWaiting(Transient):
    """Too many requests wait in this publisher already; send fewer at a time."""


class PublisherStopping(Transient):
    """The publisher is going away; send the request again, to another one."""


class NoProgress(Transient):
    """Requests are under way for long and get nowhere; the publisher has to be restarted."""


class Publishes(Protocol):
    """What a line's thread works with; see `Publishing`."""

    @property
    def steps(self) -> int:
        """A number that grows while an export goes on, however long it takes."""
        ...

    def publish(self, group: Sequence[Pending]) -> None:
        """Get some of `group` nearer to its answer; the others wait."""
        ...

    def reconcile(self) -> bool:
        """Look after what an earlier publisher left; false when it is to be looked at again."""
        ...

    def stop(self) -> None:
        """Stop waiting; may be called by any thread."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class PublishQueue:
    """A component that publishes what is put into it, first come, first served."""

    def __init__(
        self,
        name: str,
        publishing: Publishes,
        clock: Clock,
        *,
        give_up_s: float,
        reconciles: bool = True,
    ) -> None:
        """Without `reconciles` there is nothing to do, and no thread, before the first request."""
        self._reconciles, self._started, self._runs = reconciles, False, False
        self._publishing, self._clock, self._give_up_s = publishing, clock, give_up_s
        self._waiting: queue.Queue[Pending | None] = queue.Queue()
        self._lock = threading.Lock()
        self._closed = False
        self._progress: tuple[int, int, float] | None = None
        """How many requests are under way, the steps when that was noticed, and when that was."""
        self._worker = Worker(name, self._run)

    def check(self) -> None:
        """Raise `TooManyWaiting` or `PublisherStopping` when nothing may be put now."""
        if self._closed:
            raise _stopping()
        if self._waiting.qsize() >= _WAITING:
            raise TooManyWaiting(
                f"{_WAITING} requests wait in this publisher already; send fewer at a time"
            )

    def check_progress(self) -> None:
        """Raise `NoProgress` when a group has been under way for long without a step."""
        progress, steps = self._progress, self._publishing.steps
        if progress is None:
            return
        requests, known, since = progress
        now = self._clock.monotonic()
        if steps != known:
            self._note(progress, (requests, steps, now))
        elif now - since > NO_PROGRESS_S:
            raise NoProgress(
                f"{self._worker.name}: {requests} requests have been under way for "
                f"{now - since:.0f} s without progress; restart this publisher if that goes on"
            )

    def put(self, pending: Pending) -> None:
        """Take a request; it is answered, or refused when the line is closed."""
        with self._lock:
            if not self._closed:
                self._waiting.put(pending)
                self._begin()
                return
        pending.fail(_stopping())

    def start(self) -> None:
        """Start the thread, if there is something to do."""
        with self._lock:
            self._started = True
            if self._reconciles or not self._waiting.empty():
                self._begin()

    def _begin(self) -> None:
        if self._started and not self._runs:
            self._runs = True
            self._worker.start()

    def request_stop(self) -> None:
        """Make the group under way the last one, and return at once."""
        self._worker.request_stop()
        self._publishing.stop()
        self._waiting.put(None)

    def stop(self, timeout: float) -> None:
        """Publish the group that is under way, refuse the rest, end the thread."""
        self.request_stop()
        with self._lock:
            self._closed = self._closed or not self._runs
        self._worker.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what the thread died of."""
        return self._worker.failure()

    def _run(self, stopping: threading.Event) -> None:
        pause = self._reconcile()
        while not stopping.is_set():
            group = self._gather(pause)
            if group:
                self._publish(group, stopping)
                pause = _BACKLOG_S
            elif not stopping.is_set():
                pause = self._reconcile()
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
        """Publish until each has its answer, or failures go on for too long without progress."""
        give_up: float | None = None  # counted from a first failure: an export may take longer
        unanswered = list(group)
        while unanswered:
            error = self._watched(unanswered)
            unanswered = [pending for pending in unanswered if not pending.future.done()]
            if error is None:
                give_up = None
                continue
            now = self._clock.monotonic()
            give_up = give_up or now + self._give_up_s
            if now >= give_up or self._clock.wait(stopping, _RETRY_S):
                for pending in unanswered:
                    pending.fail(error)
                return

    def _watched(self, group: Sequence[Pending]) -> Exception | None:
        with self._lock:
            self._progress = len(group), self._publishing.steps, self._clock.monotonic()
        try:
            return self._try(group)
        finally:
            with self._lock:
                self._progress = None

    def _note(self, known: tuple[int, int, float], now: tuple[int, int, float]) -> None:
        with self._lock:
            if self._progress is known:  # and not that of a later group
                self._progress = now

    def _try(self, group: Sequence[Pending]) -> Exception | None:
        try:
            self._publishing.publish(group)
        except (Transient, *AWAY) as error:
            logger.warning("publishing failed", extra={"requests": len(group), "error": str(error)})
            return error
        except Exception as error:
            logger.exception("publishing failed", extra={"requests": len(group)})
            for pending in group:
                pending.fail(error)
        return None

    def _reconcile(self) -> float:
        """Look after what an earlier holder left; returns when to look again, in seconds."""
        try:
            settled = self._publishing.reconcile()
        except (PackhorseError, psycopg.Error) as error:
            logger.warning("the outbox could not be reconciled", extra={"error": str(error)})
            settled = False
        return _IDLE_S if settled else _BACKLOG_S


def _stopping() -> PublisherStopping:
    return PublisherStopping("this publisher is going away; send the request again")
