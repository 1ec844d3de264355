"""Announces the subscriber: every 10 s, and soon after each batch (R16)."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from packhorse.clock import Clock
from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal, Outgoing
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.runtime.metrics import SUBSCRIBER_LAG_ENTRIES, SUBSCRIBER_LAG_SECONDS
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.tracing import inject
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import DiscoveryMessage
from packhorse.wire.topics import Topics
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport
from packhorse_services.subscriber.lease import Lease

_APPEND_TIMEOUT_S = 10.0
_LEAST_GAP_S = 0.25
_HURRIED_GAP_S = 0.02


@dataclass(frozen=True, slots=True)
class Identity:
    """Who announces itself, and how often."""

    subscriber: str
    instance: str
    editable: bool = False
    max_retries: int = -1
    endpoint: str = ""
    announce_s: float = 10.0
    path_filter: PathFilter = EVERYTHING


class Announcer(Periodic):
    """A component; only the worker that holds the lease speaks for the subscriber.

    It speaks once every subscription has found its position under that lease: what a report holds
    before is nothing, or where another worker took over.
    """

    def __init__(
        self,
        journal: Journal,
        topics: Topics,
        identity: Identity,
        reports: Sequence[SubscriptionReport],
        lease: Lease,
        clock: Clock | None = None,
    ) -> None:
        super().__init__("announcer", identity.announce_s, self._round, clock=clock)
        self._journal, self._topics, self._identity = journal, topics, identity
        self._reports, self._lease = reports, lease
        self._ending, self._hurried = threading.Event(), threading.Event()

    def kick(self, *, awaited: bool = False) -> None:
        """Announce soon; many kicks become a few announcements a second.

        What somebody waits for is announced at once, however lately there was one.
        """
        if awaited:
            self._hurried.set()
        super().kick()

    def stop(self, timeout: float) -> None:
        """End."""
        self._ending.set()
        self._hurried.set()
        super().stop(timeout)

    def announce(self) -> None:
        """Append one announcement. Raises what the journal raises."""
        message = DiscoveryMessage(
            self._identity.subscriber,
            tuple(report.state for report in self._reports),
            editable=self._identity.editable,
            max_retries=self._identity.max_retries,
            endpoint=self._identity.endpoint,
            announced_ms=self._clock.wall_ms(),
            subscriber_instance=self._identity.instance,
            include=self._identity.path_filter.include,
            exclude=self._identity.path_filter.exclude,
            map_paths=self._identity.path_filter.map_paths,
            exclude_properties=self._identity.path_filter.exclude_properties,
        )
        encoded = encode_discovery(message)
        record = Outgoing(encoded.value, {**encoded.headers, **inject()}, message.subscriber)
        self._journal.append(self._topics.discovery, record).result(_APPEND_TIMEOUT_S)

    def _round(self) -> None:
        if self._lease.epoch() is None or not all(one.is_placed for one in self._reports):
            _forget_lag()
            return
        self._hurried.clear()
        try:
            self.announce()
            self._measure_lag()
        except (PackhorseError, TimeoutError):
            _forget_lag()
            raise
        if not self._clock.wait(self._ending, _HURRIED_GAP_S):
            self._clock.wait(self._hurried, _LEAST_GAP_S)

    def _measure_lag(self) -> None:
        end = self._journal.bounds(self._topics.package).next
        for report in self._reports:
            agent = report.state.publisher_agent
            SUBSCRIBER_LAG_ENTRIES.labels(agent).set(max(0, end - 1 - report.state.offset))
            lag_s = report.lag_s(self._clock.wall_ms())
            if lag_s is None:
                SUBSCRIBER_LAG_SECONDS.remove(agent)
            else:
                SUBSCRIBER_LAG_SECONDS.labels(agent).set(lag_s)


def _forget_lag() -> None:
    """Show no lag rather than the last one that was known: it would not grow."""
    for metric in (SUBSCRIBER_LAG_ENTRIES, SUBSCRIBER_LAG_SECONDS):
        metric.clear()
