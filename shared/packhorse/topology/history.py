"""The last changes of the topology, for the page and for streams that resume."""

import threading
from collections import deque
from dataclasses import dataclass, field

from packhorse.topology.diff import LeaderChange, TopologyDiff
from packhorse.topology.events import EventKind, TopologyEvent

MOST_CHANGES = 100
_MOST_NAMES = 200


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """One event, without the views: ids and names only, at most 200 of each kind."""

    number: int
    """1, 2, 3 … in this process."""
    at_ms: int
    """Milliseconds since 1970 UTC, by the local wall clock: for display."""
    kind: EventKind
    instances: int
    """How many the new view has; 0 for CHANGING."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    leaders: tuple[LeaderChange, ...] = field(default=())
    properties: tuple[tuple[str, str], ...] = ()
    """Instance id and name of each property that came, went or changed."""


class TopologyHistory:
    """Remembers the newest hundred changes; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: deque[TopologyChange] = deque(maxlen=MOST_CHANGES)
        self._count = 0

    def add(self, event: TopologyEvent, at_ms: int) -> None:
        """Note an event of the flow."""
        with self._lock:
            self._count += 1
            self._changes.append(_change(self._count, event, at_ms))

    def changes(self) -> tuple[TopologyChange, ...]:
        """Return them, oldest first."""
        with self._lock:
            return tuple(self._changes)


def _change(number: int, event: TopologyEvent, at_ms: int) -> TopologyChange:
    if event.new is None:
        return TopologyChange(number, at_ms, event.kind, 0)
    diff = TopologyDiff(event.old, event.new)
    names = (
        (change.instance.id, name)
        for change in diff.property_changes
        for name in (*change.added, *change.removed, *change.changed)
    )
    return TopologyChange(
        number,
        at_ms,
        event.kind,
        len(event.new.instances),
        added=tuple(one.id for one in diff.added()[:_MOST_NAMES]),
        removed=tuple(one.id for one in diff.removed()[:_MOST_NAMES]),
        leaders=diff.leader_changes[:_MOST_NAMES],
        properties=tuple(pair for pair, _ in zip(names, range(_MOST_NAMES), strict=False)),
    )
