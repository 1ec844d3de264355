"""Where a distribution is as a whole: imported everywhere, or done and not everywhere (R31)."""

import enum
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field


class DistributionState(enum.Enum):
    """Where a distribution is as a whole (R31)."""

    ACCEPTED = "ACCEPTED"
    """Committed at the author, on its way to the journal."""
    QUEUED = "QUEUED"
    """In the journal; a live subscriber has it still before it, or none is live: of those that it
    is for."""
    DISTRIBUTED = "DISTRIBUTED"
    """Imported by every subscriber that announced itself within a day, and that it is for."""
    PARTLY_DISTRIBUTED = "PARTLY_DISTRIBUTED"
    """Every live subscriber is done with it, and one of all did not import it or is away: of those
    that it is for."""


@dataclass(frozen=True, slots=True)
class ReachedBy:
    """How far one subscriber is."""

    settled: int
    """It has certainly dealt with every package up to here."""
    began: int
    """It has imported nothing up to here."""
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Reached:
    """How far subscribers are, all as of one moment."""

    done: int
    """Every live subscriber is done with every package up to here; -1 when none is live."""
    everywhere: int
    """Every subscriber of a day has certainly dealt with every package up to here."""
    began: int
    """A subscriber has imported nothing up to here: it began behind it."""
    each: Mapping[str, ReachedBy] = field(default_factory=dict)
    """By the subscribers' names."""

    @classmethod
    def by(cls, each: Mapping[str, ReachedBy]) -> "Reached":
        """Return how far these are together."""
        return cls(
            done=min((one.settled for one in each.values() if not one.stale), default=-1),
            everywhere=min((one.settled for one in each.values()), default=-1),
            began=max((one.began for one in each.values()), default=-1),
            each=each,
        )

    def among(self, targets: Collection[str]) -> "Reached":
        """Return how far those are that a package is for; with no targets all."""
        if not targets:
            return self
        return Reached.by({name: self.each[name] for name in targets if name in self.each})

    def is_done(self, offset: int) -> bool:
        """Return whether no live subscriber has the package at `offset` still before it."""
        return offset <= self.done

    def passed_all(self, offset: int) -> bool:
        """Return whether all have had the package at `offset` before them, and dealt with it."""
        return self.began < offset <= self.everywhere


def state_of(
    reached: Reached, package_id: str, offset: int | None, other: AbstractSet[tuple[int, str]]
) -> DistributionState:
    """Return where a package is; `other` are those that a subscriber did not import."""
    if offset is None:
        return DistributionState.ACCEPTED
    if not reached.is_done(offset):
        return DistributionState.QUEUED
    is_other = (offset, package_id) in other or (offset, "") in other
    if is_other or not reached.passed_all(offset):
        return DistributionState.PARTLY_DISTRIBUTED
    return DistributionState.DISTRIBUTED
