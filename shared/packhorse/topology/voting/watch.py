"""Who is alive, as one instance sees it by its own clock.

Nobody's time is compared with anybody else's: an instance is alive while its heartbeat differs
from the last look but a time-out, so a clock that is wrong decides nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from packhorse.topology.voting.records import Heartbeat, Member, StoreView


@dataclass(frozen=True, slots=True)
class _Sign:
    """What was last seen of an instance."""

    member: Member
    count: int
    since: float
    heard: bool
    """It changed while this instance was looking; otherwise it may be of long ago."""


class PeerWatch:
    """Looks at one snapshot after the other; times are of the own monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._signs: dict[str, _Sign] = {}
        self._votings: dict[str, float] = {}
        self._looking_since = math.inf

    def doubt(self) -> None:
        """Know nothing: who has not looked for a while can't know who lives."""
        self._looking_since = math.inf

    def look(self, snapshot: StoreView, now: float) -> None:
        """Take in what is visible now."""
        first = math.isinf(self._looking_since)
        if first:
            self._looking_since = now
        self._signs = {
            beat.member.instance_id: self._sign(beat, now, first) for beat in snapshot.heartbeats
        }
        seen = {} if first else self._votings
        self._votings = {one.id: seen.get(one.id, now) for one in snapshot.votings}

    def is_sure(self, now: float) -> bool:
        """Return whether it has looked for a time-out: whoever lives has been heard by now."""
        return now - self._looking_since >= self._timeout_s

    def alive(self, now: float) -> frozenset[Member]:
        """Return whose heartbeat has changed within the time-out."""
        return self._recent(now, heard=True)

    def possible(self, now: float) -> frozenset[Member]:
        """Return who has a heartbeat that may be new or old; none once `is_sure`."""
        return self._recent(now, heard=False)

    def heard_since(self, voting_id: str) -> frozenset[Member]:
        """Return who has been heard after a voting was first seen."""
        begun = self._votings.get(voting_id, math.inf)
        # What was only there at the first look is never newer than a voting.
        return frozenset(one.member for one in self._signs.values() if begun < one.since)

    def timed_out(self, now: float) -> frozenset[str]:
        """Return the votings that have been visible for a time-out or longer."""
        began = self._votings.items()
        return frozenset(id_ for id_, since in began if now - since >= self._timeout_s)

    def _sign(self, beat: Heartbeat, now: float, first: bool) -> _Sign:
        known = self._signs.get(beat.member.instance_id)
        if first:
            return _Sign(beat.member, beat.count, now, heard=False)
        if known is None or (known.member, known.count) != (beat.member, beat.count):
            return _Sign(beat.member, beat.count, now, heard=True)
        return known

    def _recent(self, now: float, *, heard: bool) -> frozenset[Member]:
        signs: Iterable[_Sign] = self._signs.values()
        return frozenset(
            one.member for one in signs if one.heard == heard and now - one.since < self._timeout_s
        )
