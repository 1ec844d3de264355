"""What the store of jobs must do, said in the simplest words: no database, one thing at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from packhorse.jobs.consumer import Outcome
from packhorse.jobs.job import JobState
from packhorse.jobs.store.adding import AddResult

MOST_RETRIES = 2
UNORDERED, ORDERED = ("free/a", "free/b"), ("line/a", "line/b")


@dataclass
class ModelJob:
    """A job; `holder` is the claim that is good, as worker and serial number."""

    topic: str
    id: str | None
    application: str
    priority: int
    turn: int
    state: JobState = JobState.QUEUED
    attempts: int = 0
    retry: bool = False
    holder: tuple[str, int] | None = None
    again: bool = False
    stop: bool = False


@dataclass
class Model:
    """All jobs, by the order in which they were added, and the workers with a lease."""

    jobs: dict[int, ModelJob] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    turns: int = 0

    def add(self, topic: str, id_: str | None, application: str, priority: int) -> AddResult:
        """Say what comes of adding; the job itself is entered with `enter`."""
        found = self.find(topic, id_)
        if found is None:
            return AddResult.ADDED
        job = self.jobs[found]
        if not application or job.application != application:
            return AddResult.EXISTING
        if job.state is JobState.QUEUED:
            return AddResult.UPDATED
        if job.state is JobState.ACTIVE:
            job.again = True
        else:
            self._queue_again(job, retry=False)
        return AddResult.REACTIVATED

    def enter(self, number: int, job: tuple[str, str | None, str, int]) -> None:
        """Enter a new job."""
        self.jobs[number] = ModelJob(*job, turn=self._turn())

    def find(self, topic: str, id_: str | None) -> int | None:
        """Return the number of the job of that topic and id."""
        for number, job in self.jobs.items():
            if id_ is not None and (job.topic, job.id) == (topic, id_):
                return number
        return None

    def claim(self, worker: str, places: int, serial: int) -> tuple[list[int], list[int]]:
        """Claim from both queues; return the numbers, in order."""
        if worker not in self.live:
            return [], []
        free = self._waiting(UNORDERED)
        free = sorted(free, key=lambda n: (-self.jobs[n].priority, self.jobs[n].turn))[:places]
        line = sorted(self._waiting(ORDERED), key=lambda n: self.jobs[n].turn)[:1]
        if any(j.state is JobState.ACTIVE and j.topic in ORDERED for j in self.jobs.values()):
            line = []
        for number in (*free, *line):
            job = self.jobs[number]
            job.state, job.holder = JobState.ACTIVE, (worker, serial)
            job.attempts += 1
        return free, line

    def end(self, number: int, holder: tuple[str, int], outcome: Outcome) -> JobState | None:
        """End an attempt; None where the claim is not good any more."""
        job = self.jobs[number]
        if job.state is not JobState.ACTIVE or job.holder != holder:
            return None
        self._end(job, self._state_after(job, outcome), retry=outcome is not Outcome.OK)
        return job.state

    def release(self, number: int, holder: tuple[str, int]) -> JobState | None:
        """Give an attempt back, uncounted."""
        job = self.jobs[number]
        if job.state is not JobState.ACTIVE or job.holder != holder:
            return None
        job.attempts -= 1
        self._end(job, JobState.STOPPED if job.stop else JobState.QUEUED, retry=True)
        return job.state

    def rescue(self) -> list[int]:
        """Take the jobs of workers without a lease; return their numbers."""
        lost = [
            number
            for number, job in self.jobs.items()
            if job.state is JobState.ACTIVE and job.holder and job.holder[0] not in self.live
        ]
        for number in lost:
            job = self.jobs[number]
            self._end(job, self._state_after(job, Outcome.FAILED), retry=True)
        return lost

    def stop(self, number: int) -> bool:
        """Ask an attempt to stop."""
        job = self.jobs[number]
        if job.state is not JobState.ACTIVE:
            return False
        job.stop, job.again = True, False
        return True

    def requeue(self, number: int) -> bool:
        """Give a finished job back to the queue."""
        job = self.jobs[number]
        if not job.state.final:
            return False
        self._queue_again(job, retry=job.attempts > 0 and job.state is not JobState.SUCCEEDED)
        return True

    def held_by(self, worker: str) -> set[int]:
        """Return what a worker holds."""
        return {
            number
            for number, job in self.jobs.items()
            if job.state is JobState.ACTIVE and job.holder and job.holder[0] == worker
        }

    def _waiting(self, topics: Sequence[str]) -> list[int]:
        return [
            number
            for number, job in self.jobs.items()
            if job.state is JobState.QUEUED and job.topic in topics
        ]

    def _state_after(self, job: ModelJob, outcome: Outcome) -> JobState:
        if outcome is Outcome.OK:
            return JobState.SUCCEEDED
        if job.stop:
            return JobState.STOPPED
        if outcome is Outcome.CANCEL:
            return JobState.ERROR
        return JobState.GIVEN_UP if job.attempts > MOST_RETRIES else JobState.QUEUED

    def _end(self, job: ModelJob, state: JobState, *, retry: bool) -> None:
        if job.again:
            self._queue_again(job, retry=retry)
        elif state is JobState.QUEUED:
            job.state, job.retry, job.holder, job.stop = state, retry, None, False
        else:
            job.state, job.holder = state, None

    def _queue_again(self, job: ModelJob, *, retry: bool) -> None:
        job.state, job.holder, job.again, job.stop = JobState.QUEUED, None, False, False
        job.attempts, job.retry, job.turn = 0, retry, self._turn()

    def _turn(self) -> int:
        self.turns += 1
        return self.turns
