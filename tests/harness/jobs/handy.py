"""A worker of a test's own hand: it claims and ends jobs one by one, in a real database."""

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.queue import MAIN
from packhorse.jobs.store import claims, finishing, leases
from packhorse.jobs.store.claims import Claimed, ClaimRequest
from packhorse.jobs.store.finishing import Ended, Ending
from packhorse.jobs.store.queues import read_layout
from tests.harness.jobs.stored import bookkeeper

_LEASE_S = 3600.0
"""It is renewed once, so it outlasts the test."""


class HandyWorker:
    """One run on one instance; it does nothing by itself."""

    def __init__(self, url: str, instance: str = "i1") -> None:
        self._url, self.run = url, leases.WorkerRun.begin(instance)
        self.renew()

    def renew(self) -> list[leases.HeldAttempt]:
        """Keep the lease; return what it holds."""
        with bookkeeper(self._url) as connection:
            leases.renew(connection, self.run, _LEASE_S)
            return leases.holdings(connection, self.run)

    def claim(self, places: int = 1, queue: str = MAIN) -> list[Claimed]:
        """Claim jobs of all topics of a queue."""
        with bookkeeper(self._url) as connection:
            layout = read_layout(connection)
            own = sorted(topic for topic, name in layout.topics.items() if name == queue)
            kind = layout.queues[queue].configuration.type
            return claims.claim(connection, self.run, [ClaimRequest(queue, own, places, type=kind)])

    def finish(self, claimed: Claimed, outcome: Outcome = Outcome.OK) -> Ending:
        """End an attempt."""
        with bookkeeper(self._url) as connection:
            return finishing.finish(connection, [Ended(claimed.claim, Result(outcome))])[0]

    def do(self, outcome: Outcome = Outcome.OK) -> int:
        """Claim one job and end it; return its number."""
        [claimed] = self.claim()
        self.finish(claimed, outcome)
        return claimed.claim.number
