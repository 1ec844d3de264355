"""Where a process takes requests: lines for what is quick, what may be large, and producers."""

import threading

from packhorse.clock import Clock
from packhorse.errors import PackhorseError, Transient
from packhorse.runtime.lifecycle import stop_all
from packhorse.wire.actions import exports
from packhorse_services.publisher.outbox.idempotency import CallerKey, KeyInProgress, key_of
from packhorse_services.publisher.outbox.request import (
    DistributionRequest,
    Pending,
    ReleaseVersion,
)
from packhorse_services.publisher.publish.publish_queue import (
    PublisherStopping,
    Publishes,
    PublishQueue,
)

__all__ = ["PublisherBusy", "PublisherStopping", "RequestIntake"]


class PublisherBusy(Transient):
    """The request waited too long here; send it again, here or to another publisher."""


class RequestIntake:
    """A component that publishes what is submitted. `submit` may be called by any thread."""

    def __init__(
        self,
        publishing: Publishes,
        clock: Clock,
        *,
        early: Publishes | None = None,
        of_producers: Publishes | None = None,
        give_up_s: float = 20.0,
    ) -> None:
        """Take `early` for requests that may be large, if there is one; they delay no others.

        And `of_producers` for those of producers that have nothing large on its way.
        """
        self._line = quick = PublishQueue("exporter", publishing, clock, give_up_s=give_up_s)
        large = quick
        if early:
            large = PublishQueue(
                "early-exporter", early, clock, give_up_s=give_up_s, reconciles=False
            )
        sources = large
        if of_producers:
            sources = PublishQueue(
                "producer-exporter", of_producers, clock, give_up_s=give_up_s, reconciles=False
            )
        self._large, self._sources = large, sources
        self._taken: dict[str, tuple[PublishQueue, int]] = {}
        self._keys: set[CallerKey | ReleaseVersion] = set()
        self._lock = threading.Lock()

    def submit(self, request: DistributionRequest, behind: Pending | None = None) -> Pending:
        """Take a request; its future gets an `Accepted` or the reason why not.

        It is refused when `behind` is, an earlier one of its producer's (`EarlierRefused`).

        Cancelling the future succeeds until the export begins. Raises `TooManyWaiting`,
        `PublisherStopping`, or `KeyInProgress` while the same key or release is on its way here.
        """
        pending = Pending(request, behind=behind)
        line = self._line_for(pending)
        try:
            line.check()
            self._reserve(pending)
        except PackhorseError:
            pending.future.cancel()
            raise
        line.put(pending)
        return pending

    def start(self) -> None:
        """Start the threads."""
        for line in self._lines:
            line.start()

    def stop(self, timeout: float) -> None:
        """Publish the groups that are under way, refuse the rest, end the threads."""
        for line in self._lines:
            line.request_stop()
        stop_all(self._lines, timeout)

    def check(self) -> None:
        """Raise `NoProgress` when requests are under way for long and get nowhere."""
        for line in self._lines:
            line.check_progress()

    def failure(self) -> BaseException | None:
        """Return what a thread died of."""
        return next((found for line in self._lines if (found := line.failure())), None)

    @property
    def _lines(self) -> list[PublishQueue]:
        return list(dict.fromkeys((self._line, self._large, self._sources)))

    def _line_for(self, pending: Pending) -> PublishQueue:
        """Choose a line; a producer keeps its line as long as it has requests on their way.

        So its requests do not overtake each other on the way to the journal.
        """
        request = pending.request
        exported = exports(request.action) and request.prepared is None
        large = exported and bool(request.deep_paths)
        if request.producer is None:
            return self._large if large else self._line
        name = request.producer.producer
        with self._lock:
            line, count = self._taken.get(name, (self._large if large else self._sources, 0))
            self._taken[name] = line, count + 1
        pending.future.add_done_callback(lambda _: self._leave(name))
        return line

    def _leave(self, name: str) -> None:
        with self._lock:
            line, count = self._taken.pop(name)
            if count > 1:
                self._taken[name] = line, count - 1

    def _reserve(self, pending: Pending) -> None:
        key = pending.request.release or key_of(pending.request)
        if key is None:
            return
        with self._lock:
            if key in self._keys:
                raise KeyInProgress(
                    "a request with this Idempotency-Key, or of this release, is being published"
                )
            self._keys.add(key)
        pending.future.add_done_callback(lambda _: self._release(key))

    def _release(self, key: CallerKey | ReleaseVersion) -> None:
        with self._lock:
            self._keys.discard(key)
