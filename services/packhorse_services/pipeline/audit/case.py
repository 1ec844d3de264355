"""All that decides what one subscriber must hold, before the archive is asked."""

from dataclasses import dataclass

from packhorse.snapshots.snapshot import left_out
from packhorse_services.pipeline.audit.situation import Situation
from packhorse_services.pipeline.history.bases import Added, Start
from packhorse_services.pipeline.history.beginning import Beginning


@dataclass(frozen=True, slots=True)
class Case:
    """A subscriber's situation, what it removed, and the snapshot that it began with, if known."""

    situation: Situation
    removed: tuple[tuple[str, int], ...]
    """Publisher agent and offset of the packages that it did not import, in order."""
    start: Start | None
    since_start: bool
    """Whether only what came after each lane's beginning counts."""

    @property
    def key(self) -> object:
        """What is equal for those that must hold the same."""
        start = self.unlike
        told = (start.offset, start.left_out) if start else None
        own = (self.situation.journal_id, self.situation.lanes, self.removed)
        return *own, frozenset(self.added), told

    @property
    def added(self) -> dict[str, Added]:
        """The lanes that were added after its snapshot, by agent: they began elsewhere."""
        if self.since_start:
            return {}
        return {
            lane.agent: Added(
                lane.started,
                lane.offset,
                frozenset(offset for agent, offset in self.removed if agent == lane.agent),
            )
            for lane in self.situation.added
        }

    @property
    def unlike(self) -> Start | None:
        """What it began with, when that lacks other packages than it has removed up to there."""
        start, added = self.start, self.added
        if start is None:
            return None
        own = (at for agent, at in self.removed if at <= start.offset and agent not in added)
        return start if start.left_out != left_out(own) else None

    def spans(self, begin: Beginning) -> dict[str, tuple[int, int]]:
        """Return, of each agent, above which offset its packages count, and up to which."""
        numbered = self.numbered(begin)
        return {
            lane.agent: (begin.after if lane.agent in numbered else lane.started, lane.offset)
            for lane in self.situation.lanes
        }

    def imported(self, begin: Beginning) -> dict[str, tuple[int, int]]:
        """Return the same of what each lane has imported by itself, as far back as is known.

        What a snapshot held that lacks other packages is not told by the archive: it is passed by.
        """
        known = self.spans(begin)
        if self.unlike is not None:
            return known
        return {
            lane.agent: (
                min(known[lane.agent][0], max(begin.whole_after, lane.started)),
                lane.offset,
            )
            for lane in self.situation.lanes
        }

    def numbered(self, begin: Beginning) -> set[str]:
        """Return the agents of whom what came before `begin` counts, and their numbers (R27)."""
        if self.since_start:
            return set()
        alone = self.added.keys() - set(begin.base.publisher_agents if begin.base else ())
        return set(self.situation.agents) - alone
