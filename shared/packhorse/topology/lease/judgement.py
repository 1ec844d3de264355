"""Whether an instance may say that the leases of others have run out, in its own time only.

Leases also run out when nobody could renew them: the database was away, its clock was set, or the
whole machine stood still. Whoever is back first would then end everybody else, leader included.
So an instance judges only after it has renewed its own lease without a gap for as long as a lease
lasts, beside a clock of the database that went like its own: until then all others that live have
renewed theirs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Renewed:
    """One successful renewal: sent and answered by the own monotonic clock, done by the other."""

    sent_at: float
    answered_at: float
    database_s: float


class Judgement:
    """Remembers since when renewals have come without a gap."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._last: Renewed | None = None
        self._since = 0.0

    def renewed(self, renewal: Renewed) -> None:
        """Take note of a renewal."""
        if self._last is None or self._is_broken(self._last, renewal):
            self._since = renewal.answered_at
        self._last = renewal

    def may_judge(self, now: float) -> bool:
        """Tell whether others have had the time of a lease to renew theirs."""
        return self._last is not None and now - self._since >= self._lease_s

    def forget(self) -> None:
        """Begin anew: the own lease was lost."""
        self._last = None

    def _is_broken(self, last: Renewed, renewal: Renewed) -> bool:
        """Tell of a gap, or of more time at the database than from the last sending until now."""
        passed = renewal.answered_at - last.sent_at
        jumped = renewal.database_s - last.database_s > passed + self._lease_s / 10
        return jumped or renewal.sent_at - last.answered_at > self._lease_s / 2
