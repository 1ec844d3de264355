"""Which events of the topology listeners get, and when: without I/O, time is a parameter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from packhorse.topology.membership import Observation
from packhorse.topology.view import ClusterView, TopologyView

MIN_EVENT_DELAY_S = 3.0


class EventKind(StrEnum):
    """What kind of news it is."""

    INIT = "INIT"
    """The first view that a listener hears of."""
    CHANGING = "CHANGING"
    """The last view holds no more; a CHANGED follows once all instances agree on a new one."""
    CHANGED = "CHANGED"
    """The agreed view; it may look like the last one."""
    PROPERTIES_CHANGED = "PROPERTIES_CHANGED"
    """Only properties differ; the instances, their order and the leaders are the same."""


@dataclass(frozen=True, slots=True)
class TopologyEvent:
    """One piece of news: `old` is None for INIT, `new` is None for CHANGING."""

    kind: EventKind
    old: TopologyView | None
    new: TopologyView | None


class EventFlow:
    """Turns observations into events: INIT first, CHANGING before each CHANGED.

    A view is handed out when it is agreed (`Observation.settled`) and no sooner than the delay
    after CHANGING; what changes until then is joined. It holds until its observation runs out, or
    another revision or other remote clusters are seen. Not safe for threads.
    """

    def __init__(self, min_event_delay_s: float = MIN_EVENT_DELAY_S) -> None:
        self._delay_s = min_event_delay_s
        self._seen: Observation | None = None
        self._remotes: tuple[ClusterView, ...] = ()
        self._view: TopologyView | None = None
        self._revision = ""
        self._current = False
        self._not_before = self._requested_at = -math.inf

    @property
    def view(self) -> TopologyView | None:
        """The view that was handed out last, whether it still holds or not."""
        return self._view

    @property
    def observation(self) -> Observation | None:
        """What was seen last; None at first and after `lose`."""
        return self._seen

    def is_current(self, now: float) -> bool:
        """Return whether `view` may be relied on at this time of the own monotonic clock."""
        return self._current and self._seen is not None and now < self._seen.valid_until

    def acknowledgement(self) -> str | None:
        """Return the revision to acknowledge to the other instances; None without one.

        Nobody here relies on an older view: another revision than the one that was handed out
        ends that view, with CHANGING, in the same call in which it is observed.
        """
        return None if self._seen is None or self._seen.view is None else self._seen.revision

    def due(self) -> float:
        """Return when `elapsed` has something to do, on the own monotonic clock; inf if never."""
        if self._seen is None:
            return math.inf
        if self._current:
            return self._seen.valid_until
        waits = self._seen.view is not None and self._seen.settled
        return self._not_before if waits and self._not_before > self._requested_at else math.inf

    def observe(
        self, observation: Observation, remotes: Sequence[ClusterView], now: float
    ) -> list[TopologyEvent]:
        """Take in what a heartbeat has seen, and return what listeners must hear, in order."""
        self._seen = observation
        self._remotes = tuple(sorted(remotes, key=lambda cluster: cluster.id))
        return self._news(now)

    def elapsed(self, now: float) -> list[TopologyEvent]:
        """Return what listeners must hear because time has passed."""
        return self._news(now)

    def lose(self, now: float) -> list[TopologyEvent]:
        """Take no part any more, until the next observation."""
        self._seen = None
        return self._news(now)

    def _news(self, now: float) -> list[TopologyEvent]:
        agreed, self._requested_at = self._agreed(now), now
        events = []
        if self._current and not self._holds(agreed):
            self._current, self._not_before = False, now + self._delay_s
            events.append(TopologyEvent(EventKind.CHANGING, self._view, None))
        if agreed is None or (agreed == self._view and self._current):
            return events
        if self._current:
            events.append(self._hand_out(EventKind.PROPERTIES_CHANGED, agreed))
        elif now >= self._not_before:
            kind = EventKind.INIT if self._view is None else EventKind.CHANGED
            events.append(self._hand_out(kind, agreed))
        return events

    def _agreed(self, now: float) -> TopologyView | None:
        seen = self._seen
        if seen is None or seen.view is None or not seen.settled or now >= seen.valid_until:
            return None
        others = tuple(one for one in self._remotes if one.id != seen.view.id)
        return TopologyView(seen.view, others)

    def _holds(self, agreed: TopologyView | None) -> bool:
        if agreed is None or self._view is None or self._seen is None:
            return False
        return self._seen.revision == self._revision and _shape(agreed) == _shape(self._view)

    def _hand_out(self, kind: EventKind, view: TopologyView) -> TopologyEvent:
        event = TopologyEvent(kind, self._view, view)
        self._view, self._current = view, True
        self._revision = "" if self._seen is None else self._seen.revision
        return event


def _shape(view: TopologyView) -> list[tuple[str, list[tuple[str, bool]]]]:
    """Return everything but the properties."""
    return [
        (cluster.id, [(one.id, one.is_leader) for one in cluster.instances])
        for cluster in view.clusters
    ]
