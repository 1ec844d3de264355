"""A program with consumers as a process; what its jobs do is in the ledger.

`--broken` makes it a wrong build, for the checkers to catch: `unfenced` finishes jobs without
looking at the epoch, `unflagged` forgets that an earlier attempt may have done the work.
`--until-resumed` lets the jobs of `paused` go on at SIGCONT, however late the test pauses it.
"""

import argparse
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.consumer import JobContext, Outcome
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import LEADER_TASKS, open_jobs
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.store import ending_rows, finishing
from packhorse.jobs.store.finishing import Ended, Ending
from packhorse.jobs.work.attempt import RunningAttempt
from packhorse.jobs.work.heartbeat import WorkerSettings
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.runtime.signals import set_by_signals
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.own_cluster import InstanceProperties, join
from tests.harness.jobs.ledger import CHECKED, LEAST, ONCE

LEASE_S, RENEWAL_S = 4.0, 1.0
SETTINGS = WorkerSettings(
    lease_s=LEASE_S, renewal_s=RENEWAL_S, poll_s=0.2, rescue_s=0.5, places=16, usual_parallel=4
)
QUEUES = (
    QueueConfiguration("ordered", ("ordered/**",), max_retries=-1, retry_delay_s=0.05),
    QueueConfiguration(
        "work",
        (f"{ONCE}/**", f"{CHECKED}/**", f"{LEAST}/**"),
        type=QueueType.UNORDERED,
        max_parallel=8,
        max_retries=-1,
        retry_delay_s=0.05,
        max_retry_delay_s=0.5,
    ),
)


def report(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Effects:
    """The consumers."""

    def __init__(self, url: str, instance: str, pause_s: float) -> None:
        self._url, self._instance, self._pause_s = url, instance, pause_s
        self.resumed = threading.Event()
        self._chance = random.Random(os.getpid())

    def in_completion(self, job: Job, context: JobContext) -> Outcome:
        self._work(job, context)
        with context.completion() as connection:
            self._write(connection, job)
        return Outcome.OK

    def held(self, job: Job, context: JobContext) -> Outcome:
        self._work(job, context)
        with connect(self._url, "effects") as connection:
            context.check(connection)
            act_as(connection, BOOKKEEPER)
            self._write(connection, job)
        return Outcome.OK

    def free(self, job: Job, context: JobContext) -> Outcome:
        self._work(job, context)
        with connect(self._url, "effects") as connection:
            self._write(connection, job)
        return Outcome.OK

    def paused(self, job: Job, context: JobContext) -> Outcome:
        """Give the test time to pause the process between the beginning and the effect."""
        report("begun", job.number, job.epoch)
        self.resumed.wait(self._pause_s)
        try:
            with context.completion() as connection:
                self._write(connection, job)
        except Exception as error:
            report("refused", job.number, job.epoch, type(error).__name__)
            raise
        report("done", job.number, job.epoch)
        return Outcome.OK

    def ends_slowly(self, job: Job, context: JobContext) -> Outcome:
        """The same between the effect and the end."""
        self.free(job, context)
        report("begun", job.number, job.epoch)
        self.resumed.wait(self._pause_s)
        return Outcome.OK

    def crashes(self, job: Job, context: JobContext) -> Outcome:
        """End the process, whatever it does besides."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    def _work(self, job: Job, context: JobContext) -> None:
        context.progress(1, "at work")
        context.wait(self._chance.random() * 0.05)
        if job.attempts == 1 and job.number % 23 == 0:
            raise OSError("it goes wrong the first time")

    def _write(self, connection: Connection, job: Job) -> None:
        connection.execute(
            "INSERT INTO public.effect (kind, number, epoch, retry, instance) "
            "VALUES (%s, %s, %s, %s, %s)",
            (job.topic.split("/")[0], job.number, job.epoch, job.retry, self._instance),
        )


def break_build(how: str) -> None:
    if how == "unfenced":
        right = finishing.finish

        def finish(connection: Connection, ended: Sequence[Ended]) -> list[Ending]:
            return [
                Ending(one.claim, one.state or JobState.SUCCEEDED)
                for one in right(connection, ended)
            ]

        finishing.finish = finish
        RunningAttempt.require_open = lambda _: None  # type: ignore[method-assign]
    elif how == "unflagged":
        there = "retry = d.retry"
        assert there in ending_rows._REQUEUE
        ending_rows._REQUEUE = ending_rows._REQUEUE.replace(there, "retry = false")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--broken", default="")
    parser.add_argument("--until-resumed", action="store_true")
    given: Any = parser.parse_args()
    break_build(given.broken)
    effects = Effects(given.url, given.name, 300.0 if given.until_resumed else 1.0)
    signal.signal(signal.SIGCONT, lambda *_: effects.resumed.set())
    consumers = Consumers()
    consumers.add("once/**", effects.in_completion)
    consumers.add("once/paused", effects.paused)
    consumers.add("once/crash", effects.crashes)
    consumers.add("ordered/**", effects.in_completion)
    consumers.add("checked/**", effects.held)
    consumers.add("least/**", effects.free)
    consumers.add("least/paused", effects.ends_slowly)
    topology = TopologyConfiguration(
        instance_id=given.name,
        topology_interval_s=0.5,
        topology_timeout_s=LEASE_S,
        min_event_delay_s=0.2,
    )
    cluster = join(given.url, topology, InstanceProperties("tests", leader_tasks=LEADER_TASKS))
    host = open_jobs(
        given.url, cluster, consumers=consumers, declared=Declared(QUEUES), settings=SETTINGS
    )
    stopping = threading.Event()
    with set_by_signals(stopping), Lifecycle([cluster, host]) as parts:
        report("ready")
        while not stopping.wait(0.5):
            parts.check()
    report("ended")


if __name__ == "__main__":
    main()
