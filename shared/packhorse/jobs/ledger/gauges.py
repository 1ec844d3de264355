"""Sets the metrics of what waits in the cluster; one program of a cluster is enough to ask."""

from packhorse.db.transactions import Connect, reading
from packhorse.jobs.job import JobState
from packhorse.jobs.ledger.figures import JobFigures, read_statistics
from packhorse.runtime.metrics import JOBS_UNFINISHED, report
from packhorse.runtime.periodic import Periodic

_EVERY_S = 15.0


class Gauges(Periodic):
    """A component that counts unfinished jobs by queue and state, as far as the store counts."""

    def __init__(self, connect: Connect) -> None:
        super().__init__("jobs-gauges", _EVERY_S, self.count, at_once=True)
        self._connect = connect
        self._known: set[str] = set()
        report("packhorse_jobs_unfinished")

    def count(self) -> None:
        """Count now. Raises `psycopg.Error`."""
        with reading(self._connect) as connection:
            queues = read_statistics(connection).queues
        for queue in self._known - set(queues):
            for state in (JobState.QUEUED, JobState.ACTIVE):
                JOBS_UNFINISHED.remove(queue, state.value)
        for queue, figures in queues.items():
            _show(queue, figures)
        self._known = set(queues)


def _show(queue: str, figures: JobFigures) -> None:
    JOBS_UNFINISHED.labels(queue, JobState.QUEUED.value).set(figures.queued)
    JOBS_UNFINISHED.labels(queue, JobState.ACTIVE.value).set(figures.active)
