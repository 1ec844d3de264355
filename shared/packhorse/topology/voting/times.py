"""When something is due in a cluster that votes; all times in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VotingTimes:
    """How often an instance says that it lives, and for how long it is believed; the same for all.

    The store must show a change to everybody in less than `timeout_s`, or the cluster may split.
    """

    interval_s: float = 15.0
    timeout_s: float = 20.0

    @property
    def look_s(self) -> float:
        """Seconds between looks at the store; not every one needs a heartbeat before it."""
        return self.interval_s / 3

    @property
    def hurry_s(self) -> float:
        """Seconds between looks while something is changing."""
        return self.interval_s / 10

    @property
    def late_after_s(self) -> float:
        """The age of the own heartbeat from which on the own view holds no more.

        It is never longer than the time-out, after which the others vote without this instance.
        """
        return max(min(self.timeout_s, 2 * self.interval_s), self.timeout_s - 2 * self.interval_s)


DEFAULT_TIMES = VotingTimes()
"""The times that Sling uses."""
