"""What this instance can take jobs from, kept for as long as it holds; no I/O."""

from collections.abc import Sequence

from packhorse.jobs.consumers import Consumers
from packhorse.jobs.store.claims import Claimed, Wish
from packhorse.jobs.store.queues import Layout
from packhorse.jobs.work.slots import Slots
from packhorse.jobs.work.surroundings import Surroundings
from packhorse.jobs.work.wishes import Offer, Wishes, offers

_SHORTEST_S = 0.25
"""Hints come in crowds, and a new topic or queue is no everyday thing."""


class Offering:
    """Queues and topics as they were read last; times are monotonic seconds."""

    def __init__(
        self, consumers: Consumers, surroundings: Surroundings, longest_s: float = 5.0
    ) -> None:
        """Take after how long all is read anew without a hint."""
        self._consumers, self._surroundings = consumers, surroundings
        self._longest_s, self._wishes = longest_s, Wishes()
        self._layout: Layout | None = None
        self._offers: Sequence[Offer] = ()
        self._changed = False
        self._read_at = float("-inf")
        self._hinted = False

    def hint(self) -> None:
        """Queues or topics may have changed; may be called by any thread."""
        self._hinted = True

    def change(self) -> None:
        """Consumers, here or elsewhere, may have changed; may be called by any thread."""
        self._changed = True

    def is_outdated(self, now: float) -> bool:
        """Tell whether queues and topics are to be read again."""
        return now >= self.next_update()

    def next_update(self) -> float:
        """Return when they are to be read again."""
        return self._read_at + (_SHORTEST_S if self._hinted else self._longest_s)

    def updating(self) -> None:
        """Note that they will be read now: what is hinted from here on is not in it for sure."""
        self._hinted = False

    def update(self, layout: Layout, now: float) -> None:
        """Take them as they were read."""
        self._layout, self._read_at, self._changed = layout, now, True

    def wishes(self, slots: Slots) -> list[Wish]:
        """Return what to claim, given the places."""
        if self._changed and self._layout is not None:
            self._changed = False
            self._offers = offers(self._layout, self._does, self._surroundings.consumes())
        return self._wishes.wishes(self._offers, slots)

    def leads(self) -> bool:
        """Whether this instance leads now."""
        return self._surroundings.leads()

    def had(self, claimed: Claimed) -> None:
        """Note a job that was claimed: other topics come first the next time."""
        self._wishes.had(claimed.job.queue, claimed.job.topic)

    def _does(self, topic: str) -> bool:
        return self._consumers.find(topic) is not None
