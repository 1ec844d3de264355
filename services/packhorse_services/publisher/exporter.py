"""Where a process takes requests: one line for what is quick, one for what may be large."""

import threading

from packhorse.clock import Clock
from packhorse.errors import Transient
from packhorse.wire.messages import Action
from packhorse_services.publisher.distribute import DistributionRequest
from packhorse_services.publisher.early import EarlyPublishing
from packhorse_services.publisher.idempotency import CallerKey, KeyInProgress, key_of
from packhorse_services.publisher.line import Line, PublisherStopping, Publishes
from packhorse_services.publisher.pending import Pending

__all__ = ["Exporter", "PublisherBusy", "PublisherStopping"]


class PublisherBusy(Transient):
    """The request waited too long here; send it again, here or to another publisher."""


class Exporter:
    """A component that publishes what is submitted. `submit` may be called by any thread."""

    def __init__(
        self,
        publishing: Publishes,
        clock: Clock,
        *,
        early: EarlyPublishing | None = None,
        give_up_s: float = 20.0,
    ) -> None:
        """Take `early` for requests that may be large, if there is one; they delay no others."""
        self._line = Line("exporter", publishing, clock, give_up_s=give_up_s)
        self._early = early and Line("early-exporter", early, clock, give_up_s=give_up_s)
        self._keys: set[CallerKey] = set()
        self._lock = threading.Lock()

    def submit(self, request: DistributionRequest) -> Pending:
        """Take a request; its future gets an `Accepted` or the reason why not.

        Cancelling the future succeeds until the export begins. Raises `TooManyWaiting`,
        `PublisherStopping`, or `KeyInProgress` while the same key is on its way here.
        """
        line = self._early if self._early and _may_be_large(request) else self._line
        line.check()
        pending = Pending(request)
        self._reserve(pending)
        line.put(pending)
        return pending

    def start(self) -> None:
        """Start the threads."""
        for line in self._lines:
            line.start()

    def stop(self, timeout: float) -> None:
        """Publish the groups that are under way, refuse the rest, end the threads."""
        for line in self._lines:
            line.ask_to_end()
        for line in self._lines:
            line.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what a thread died of."""
        return next((found for line in self._lines if (found := line.failure())), None)

    @property
    def _lines(self) -> list[Line]:
        return [self._line, *([self._early] if self._early else [])]

    def _reserve(self, pending: Pending) -> None:
        key = key_of(pending.request)
        if key is None:
            return
        with self._lock:
            if key in self._keys:
                raise KeyInProgress("a request with this Idempotency-Key is being published")
            self._keys.add(key)
        pending.future.add_done_callback(lambda _: self._release(key))

    def _release(self, key: CallerKey) -> None:
        with self._lock:
            self._keys.discard(key)


def _may_be_large(request: DistributionRequest) -> bool:
    """Tell whether a request is exported early.

    All of a producer's are: its requests must not overtake each other on the way to the journal.
    """
    deep = request.action is Action.ADD and bool(request.deep_paths)
    return deep or request.producer is not None
