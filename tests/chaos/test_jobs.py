"""Workers killed, paused past their lease and resumed, and Postgres restarted, during many jobs.

`make test` runs the bounded version; TEST_CHAOS_JOBS and TEST_CHAOS_SEED choose another,
as `make chaos` does.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from packhorse.db.connect import connect
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.store.given import NewJob
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.chaos.jobs_worker import LEASE_S
from tests.harness.jobs import ledger
from tests.harness.postgres import Databases, running_postgres
from tests.harness.processes import Process
from tests.harness.waiting import eventually

JOBS = int(os.environ.get("TEST_CHAOS_JOBS", "200"))
SEED = int(os.environ.get("TEST_CHAOS_SEED", "1"))
WORKERS = 4
FAULTY_S = max(8.0, JOBS / 150)
"""For how long jobs are given; faults go on until all are given, and each kind has come."""
KINDS = frozenset({"killed", "paused past its lease", "stopped", "postgres restarted"})
SETTLED_S = 240.0

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


@dataclass
class Cluster:
    """A database, and processes that do its jobs."""

    url: str
    folder: Path
    workers: list[Process] = field(default_factory=list)

    def add(self, name: str, *flags: str, broken: str = "") -> Process:
        command = (sys.executable, "-m", "tests.chaos.jobs_worker", self.url, name)
        made = Process(name, (*command, "--broken", broken, *flags), {}, self.folder)
        self.workers.append(made)
        made.start()
        return made

    def jobs(self) -> Jobs:
        return Jobs(lambda: connect(self.url, "test"), "")

    def end(self) -> None:
        for one in self.workers:
            if one.running:
                one.resume()
                one.kill()


@contextmanager
def cluster(databases: Databases) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="packhorse-test-jobs-"))
    made = Cluster(databases.new("jobs"), folder)
    ledger.install(made.url)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


class Giver:
    """Gives jobs in batches, again and again until each has been answered, as clients do."""

    def __init__(self, jobs: Jobs, count: int, seconds: float) -> None:
        self._jobs, self._count, self._seconds = jobs, count, seconds
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.repeated = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        batch = max(1, self._count // 100)
        for first in range(0, self._count, batch):
            numbers = range(first, min(self._count, first + batch))
            given = [NewJob(_topic(number), {"n": number}, id=str(number)) for number in numbers]
            while not self._give(given):
                self.repeated += 1
                time.sleep(0.2)
            time.sleep(self._seconds * batch / self._count)

    def _give(self, given: Sequence[NewJob]) -> bool:
        try:
            self._jobs.add_jobs(given)
        except psycopg.OperationalError:
            return False
        return True


def _topic(number: int) -> str:
    kinds = {0: ledger.ORDERED, 1: ledger.LEAST, 2: ledger.CHECKED}
    return f"{kinds.get(number % 10, ledger.ONCE)}/{number % 3}"


class Faults:
    """A seeded sequence of faults; every kind comes before any comes again."""

    def __init__(self, run: Cluster, server: EmbeddedPostgres, seed: int) -> None:
        self._run, self._server, self._chance = run, server, random.Random(seed)
        self._paused: dict[str, float] = {}
        self._menu: list[Callable[[], str]] = []
        self._next_restart = time.monotonic() + min(5.0, FAULTY_S / 3)
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        """Do what is due; start again what has ended by itself."""
        now = time.monotonic()
        for one in self._run.workers:
            if self._paused.get(one.name, now) < now:
                one.resume()
                del self._paused[one.name]
                self.done["paused past its lease"] += 1
            if not one.running:
                self.done["ended by itself"] += 1
                one.start()
        if now >= self._next_restart:
            self._restart_postgres()
            self._next_restart = time.monotonic() + self._chance.uniform(5, 12)
        elif self._chance.random() < 0.6:
            self.done[self._kind()()] += 1

    def heal(self) -> None:
        for one in self._run.workers:
            one.resume()
            if not one.running:
                one.start()
        self._paused.clear()

    def _kind(self) -> Callable[[], str]:
        if not self._menu:
            self._menu = [self._kill, self._pause, self._stop]
            self._chance.shuffle(self._menu)
        return self._menu.pop()

    def _victim(self) -> Process:
        able = [one for one in self._run.workers if one.name not in self._paused]
        return self._chance.choice(able)

    def _kill(self) -> str:
        victim = self._victim()
        victim.kill()
        victim.start()
        return "killed"

    def _pause(self) -> str:
        if len(self._paused) < WORKERS - 1:
            victim = self._victim()
            victim.pause()
            self._paused[victim.name] = time.monotonic() + LEASE_S * self._chance.uniform(1.2, 2)
        return "paused"

    def _stop(self) -> str:
        victim = self._victim()
        await_ready(victim)
        assert victim.stop(180) == 0, victim.said()
        victim.start()
        return "stopped"

    def _restart_postgres(self) -> None:
        if self._chance.random() < 0.5:
            os.kill(self._server.pid(), signal.SIGKILL)
        else:
            self._server.stop("fast")
        self._server.start()
        self.done["postgres restarted"] += 1


def test_every_effect_is_there_once_whatever_is_killed() -> None:
    with running_postgres() as server, cluster(Databases(server)) as run:
        for number in range(WORKERS):
            run.add(f"worker-{number}")
        giver, faults = Giver(run.jobs(), JOBS, FAULTY_S), Faults(run, server, SEED)
        began = time.monotonic()
        giver.start()
        while giver.running or KINDS - faults.done.keys():
            faults.step()
            time.sleep(1.0)
        faults.heal()
        eventually(lambda: _left(run.url) == 0, timeout=SETTLED_S, interval=0.5, what="all done")
        took = time.monotonic() - began
        for one in run.workers:
            await_ready(one)
            assert one.stop(180) == 0, one.said()
        had = ledger.effects(run.url)
        ledger.check_all(had, ledger.outcomes(run.url), JOBS)
        reported = {
            "jobs": JOBS,
            "seconds": round(took, 1),
            "effects": len(had),
            "repeated effects": len(had) - JOBS,
            "retries": sum(one.retry for one in had),
            "by worker": Counter(one.instance for one in had),
            "batches given again": giver.repeated,
            "faults": faults.done,
        }
        print(json.dumps(reported))


def await_ready(worker: Process) -> None:
    """Wait until it handles SIGTERM; one that found no database is started again."""

    def handles_signals() -> bool:
        if not worker.running:
            worker.start()
        return "ready" in worker.output.read_text()

    eventually(handles_signals, timeout=SETTLED_S, what=worker.said())


def _left(url: str) -> int:
    with psycopg.connect(url) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM jobs.job").fetchall()
    return int(count)


@pytest.mark.parametrize(
    ("topic", "broken", "caught"),
    [
        ("once/paused", "", ""),
        pytest.param("once/paused", "unfenced", "more than once", marks=pytest.mark.proof),
        ("least/paused", "", ""),
        pytest.param("least/paused", "unflagged", "without the flag", marks=pytest.mark.proof),
    ],
)
def test_a_worker_is_paused_past_its_lease_and_resumed(
    databases: Databases, topic: str, broken: str, caught: str
) -> None:
    """The broken builds show that the checkers see what goes wrong."""
    with cluster(databases) as run:
        sleeper = run.add("sleeper", "--until-resumed", broken=broken)
        await_ready(sleeper)
        number = run.jobs().add_job(topic, id="1").job.number
        eventually(lambda: f"begun {number}" in sleeper.output.read_text(), what="it begins")
        sleeper.pause()
        await_ready(run.add("other", broken=broken))
        eventually(lambda: _left(run.url) == 0, timeout=SETTLED_S, what="the other one has done it")
        sleeper.resume()
        assert sleeper.stop(180) == 0, "it ends what it has begun"
        had, ended = ledger.effects(run.url), ledger.outcomes(run.url)
        if caught:
            with pytest.raises(AssertionError, match=caught):
                ledger.check_all(had, ended, 1)
        else:
            ledger.check_all(had, ended, 1)
            assert {one.instance for one in had} >= {"other"}


def test_a_job_that_ends_its_process_is_given_up(databases: Databases) -> None:
    """Each of its attempts counts, and nobody has to restart anything but programs."""
    with cluster(databases) as run:
        worker, jobs = run.add("victim"), run.jobs()
        [given] = jobs.add_jobs([NewJob("once/crash", max_retries=1)])

        def supervised() -> Job:
            if not worker.running:
                worker.start()
            job = jobs.get(given.job.number)
            assert job.state is JobState.GIVEN_UP
            return job

        job = eventually(supervised, timeout=SETTLED_S, interval=0.2, what="it is given up")
        assert [one.outcome for one in job.past_attempts] == ["LOST", "LOST"]
        after = jobs.add_job("once/a", id="after").job.number
        eventually(lambda: _left(run.url) == 0, timeout=SETTLED_S, what="others are done")
        assert jobs.get(after).state is JobState.SUCCEEDED
        eventually(lambda: "given up" in worker.said(4000), what="it is in the log")
