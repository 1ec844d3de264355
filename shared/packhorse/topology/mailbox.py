"""What one listener has still to hear: two events at most, however slow it is."""

from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.view import TopologyView


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
