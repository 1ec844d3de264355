"""Who subscribes: known from announcements alone, configured nowhere (R16).

A subscriber that is silent for 30 s is stale, and forgotten after a day. Ages are measured on our
monotonic clock from the moment an announcement came. Of an announcement only the subscription of
our own agent is kept, and of each text as much as a page can show (R30).
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from packhorse.clock import Clock
from packhorse.messaging.api import Record
from packhorse.runtime.metrics import PUBLISHER_SUBSCRIBERS
from packhorse.wire.codec import decode_discovery
from packhorse.wire.messages import DiscoveryMessage, SubscriberState
from packhorse.wire.record import Undecodable
from packhorse_services.publisher.queues.cache.position_check import MAX_ID

logger = logging.getLogger(__name__)

STALE_S = 30.0
FORGOTTEN_S = 24 * 3600.0
_MAX_SUBSCRIBERS = 10_000
_MAX_NAME = 200
_MAX_ENDPOINT = 500
_MAX_ERROR = 2_000


@dataclass(frozen=True, slots=True)
class AnnouncedSubscriber:
    """What a subscriber last announced."""

    message: DiscoveryMessage
    """Of its subscriptions that of our agent only, if it has one, and without its time."""
    seen_ms: int
    """When the announcement entered the journal, by the journal's clock."""
    seen_at: float
    """When we got it, on our monotonic clock."""

    @property
    def name(self) -> str:
        """The subscriber's name."""
        return self.message.subscriber

    @property
    def editable(self) -> bool:
        """Whether its queue may be cleared."""
        return self.message.editable

    @property
    def follows(self) -> bool:
        """Whether it has a subscription for our agent."""
        return bool(self.message.states)

    @property
    def subscription(self) -> SubscriberState:
        """That subscription, of one that follows."""
        return self.message.states[0]


class Subscribers:
    """All subscribers of a day, as far as they follow `agent`.

    Safe for threads.
    """

    def __init__(self, clock: Clock, agent: str) -> None:
        self._clock, self._agent = clock, agent
        self._known: dict[str, AnnouncedSubscriber] = {}
        self._left_out: Mapping[str, int] = {}
        self._lock = threading.Lock()

    def note(self, record: Record, fresh: bool) -> None:
        """Take in an announcement; what is none, or one too many, is left out (R30)."""
        try:
            message = decode_discovery(record.headers, record.value)
        except Undecodable as error:
            logger.warning(
                "undecodable announcement skipped",
                extra={"offset": record.offset, "error": str(error)},
            )
            return
        name = message.subscriber
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            logger.warning("a subscriber without a usable name", extra={"offset": record.offset})
            return
        age_ms = 0 if fresh else max(0, self._clock.wall_ms() - record.time_ms)
        self._know(self._subscriber(message, record.time_ms, age_ms), in_any_case=fresh)

    def seed(self, message: DiscoveryMessage, seen_ms: int, age_ms: int) -> None:
        """Take in what is known from before, unless an announcement has come since."""
        self._know(self._subscriber(message, seen_ms, age_ms), in_any_case=False)

    def _know(self, subscriber: AnnouncedSubscriber, *, in_any_case: bool) -> None:
        """Replace what is known, if that is older; a fresh one counts whatever its clock says."""
        with self._lock:
            if subscriber.seen_ms <= self._left_out.get(subscriber.name, -1):
                return
            known = self._known.get(subscriber.name)
            if known is None and not self._has_room():
                return
            if known is None or in_any_case or known.seen_ms <= subscriber.seen_ms:
                self._known[subscriber.name] = subscriber
                PUBLISHER_SUBSCRIBERS.set(len(self._known))

    def leave_out(self, forgotten: Mapping[str, int]) -> None:
        """Know nothing of these that came up to a time of the journal's clock; later counts."""
        with self._lock:
            self._left_out = {**self._left_out, **forgotten}
            for name, until_ms in forgotten.items():
                known = self._known.get(name)
                if known is not None and known.seen_ms <= until_ms:
                    del self._known[name]
            PUBLISHER_SUBSCRIBERS.set(len(self._known))

    def _has_room(self) -> bool:
        """Make room at the cost of the one that was silent for longest, if that is stale."""
        if len(self._known) < _MAX_SUBSCRIBERS:
            return True
        silent = min(self._known.values(), key=lambda one: one.seen_at)
        if not self.is_stale(silent):
            return False
        del self._known[silent.name]
        return True

    def _subscriber(
        self, message: DiscoveryMessage, seen_ms: int, age_ms: int
    ) -> AnnouncedSubscriber:
        own = [one for one in message.states if one.publisher_agent == self._agent]
        kept = replace(
            message,
            states=tuple(map(_clipped, own[-1:])),
            subscriber_instance=message.subscriber_instance[:_MAX_NAME],
            endpoint=message.endpoint[:_MAX_ENDPOINT],
            announced_ms=0,
        )
        return AnnouncedSubscriber(kept, seen_ms, self._clock.monotonic() - age_ms / 1000)

    def get(self, name: str) -> AnnouncedSubscriber | None:
        """Return the subscriber of that name."""
        found = self._known.get(name)
        return found if found is not None and self.silent_s(found) < FORGOTTEN_S else None

    def following(self) -> list[AnnouncedSubscriber]:
        """Return those with a subscription for our agent, by name."""
        known = [one for one in list(self._known.values()) if one.follows]
        return sorted(
            (one for one in known if self.silent_s(one) < FORGOTTEN_S), key=lambda one: one.name
        )

    def live(self) -> list[AnnouncedSubscriber]:
        """Return those with a subscription for our agent that are not stale, in no order."""
        since = self._clock.monotonic() - STALE_S
        known = list(self._known.values())
        return [one for one in known if one.seen_at > since and one.follows]

    def is_stale(self, subscriber: AnnouncedSubscriber) -> bool:
        """Return whether the subscriber has been silent for too long."""
        return self.silent_s(subscriber) >= STALE_S

    def forget(self) -> None:
        """Remove those that were silent for a day."""
        with self._lock:
            self._known = {
                name: one for name, one in self._known.items() if self.silent_s(one) < FORGOTTEN_S
            }
            PUBLISHER_SUBSCRIBERS.set(len(self._known))

    def silent_s(self, subscriber: AnnouncedSubscriber) -> float:
        """Return how long ago its last announcement came."""
        return self._clock.monotonic() - subscriber.seen_at


def _clipped(state: SubscriberState) -> SubscriberState:
    return replace(
        state,
        last_error=state.last_error[:_MAX_ERROR],
        journal_id=state.journal_id[:_MAX_NAME],
        package_id=state.package_id[:MAX_ID],
    )
