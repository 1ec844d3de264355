"""Whether an instance may say that the leases of others have run out, in its own time only.

Leases also run out when nobody could renew them: the database was away, its clock was set, or the
whole machine stood still. Whoever is back first would then end everybody else, leader included.
So an instance judges only after it has renewed its own lease without a gap for as long as a lease
lasts, in one session, beside a clock of the database that went like its own. Until then all others
that live have renewed theirs, and what those rely on that don't has run out: also when a crash of
the database has taken back their last renewals.
"""

from dataclasses import dataclass

LONGEST_GAP = 0.5
"""Of a lease, from one renewal to the next; after a longer one nobody is judged for a lease."""

LONGEST_INTERVAL = 0.4
"""Of a lease, between heartbeats: a member that beats more rarely would never judge anybody."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """One successful renewal: sent and answered by the own monotonic clock, done by the other."""

    sent_at: float
    answered_at: float
    database_s: float
    session: int = 0


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
        """Return whether others have had the time of a lease to renew theirs."""
        return self._last is not None and now - self._since >= self._lease_s

    def forget(self) -> None:
        """Begin anew: the own lease was lost."""
        self._last = None

    def _is_broken(self, last: Renewed, renewal: Renewed) -> bool:
        """Report a gap, or more time at the database than from the last sending until now."""
        passed = renewal.answered_at - last.sent_at
        jumped = renewal.database_s - last.database_s > passed + self._lease_s / 10
        silent = renewal.sent_at - last.answered_at > self._lease_s * LONGEST_GAP
        return jumped or silent or renewal.session != last.session
