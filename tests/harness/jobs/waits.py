"""A consumer that a test holds up."""

import threading

from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.job import Job


class Waits:
    """A consumer that waits until it shall end, and says so."""

    def __init__(self, outcome: Outcome = Outcome.FAILED, *, stops: bool = True) -> None:
        self.outcome, self.stops = outcome, stops
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        self.jobs: list[Job] = []
        self.contexts: list[JobContext] = []

    def __call__(self, job: Job, context: JobContext) -> Result:
        self.jobs.append(job)
        self.contexts.append(context)
        self.begun.release()
        if self.stops:
            assert context.wait(300)
        else:
            assert self.go_on.wait(300)
        return Result(self.outcome, f"attempt {job.attempts}")

    def await_begin(self) -> None:
        assert self.begun.acquire(timeout=300)
