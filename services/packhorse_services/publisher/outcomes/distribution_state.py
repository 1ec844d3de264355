"""Where a distribution is as a whole: imported everywhere, or done and not everywhere (R31)."""

import enum
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


class DistributionState(enum.Enum):
    """Where a distribution is as a whole (R31)."""

    ACCEPTED = "ACCEPTED"
    """Committed at the author, on its way to the journal."""
    QUEUED = "QUEUED"
    """In the journal; a live subscriber has it still before it, or none is live."""
    DISTRIBUTED = "DISTRIBUTED"
    """Imported by every subscriber that announced itself within a day, and that it is for."""
    PARTLY_DISTRIBUTED = "PARTLY_DISTRIBUTED"
    """Every live subscriber is done with it, and one of all did not import it or is away."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far subscribers are, all as of one moment."""

    done: int
    """Every live subscriber is done with every package up to here; -1 when none is live."""
    everywhere: int
    """Every subscriber of a day has certainly dealt with every package up to here."""
    began: int
    """A subscriber has imported nothing up to here: it began behind it."""

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
