"""Tasks of the pipeline as jobs: a process each, whose end and output the job reports."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.jobs.jobs import Jobs
from packhorse.runtime.lifecycle import Lifecycle
from packhorse_services.pipeline.worker import TASKS, Task, host_of
from tests.harness.processes import Process, first_lines, is_ready
from tests.harness.waiting import eventually


@dataclass(frozen=True, slots=True)
class Script(Task):
    """A task that is a few lines of Python."""

    text: str = ""

    @property
    def command(self) -> Sequence[str]:
        return (sys.executable, "-u", "-c", self.text)


def script(name: str, text: str) -> Script:
    return Script(name, "0 0 * * *", "A script", text)


@contextmanager
def running(url: str, *tasks: Task) -> Iterator[Jobs]:
    host = host_of(url, None, tasks)
    with Lifecycle([host]):
        yield host.jobs


def job(url: str, number: int) -> dict[str, Any]:
    """Return state, result and log of a job, finished or not."""
    query = """SELECT state, result_message, log, attempts FROM (
        SELECT number, state, result_message, log, attempts FROM jobs.job UNION ALL
        SELECT number, state, result_message, log, attempts FROM jobs.finished) AS jobs
        WHERE number = %s"""
    with psycopg.connect(url) as connection:
        [row] = connection.execute(query, (number,)).fetchall()
    return dict(zip(("state", "result", "log", "attempts"), row, strict=True))


def ended(url: str, number: int, state: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = job(url, number)
        return found if found["state"] == state else None

    found = eventually(look, what=f"job {number} is {state}")
    assert found is not None
    return found


def test_what_a_task_says_is_the_log_of_its_job(database_url: str) -> None:
    says = "import sys; print('one'); print('x' * 5000); sys.stderr.write('t\\xfcr\\n')"
    with running(database_url, script("archive", says)) as jobs:
        added = jobs.add_job("packhorse/pipeline/archive")
        done = ended(database_url, added.job.number, "SUCCEEDED")
    assert done["log"][0] == "one"
    assert "tür" in done["result"]
    assert all(len(line) <= 2000 for line in done["log"])


def test_wrong_settings_are_not_tried_again_and_other_failures_are(database_url: str) -> None:
    wrong = script("wrong", "import sys; print('can\\'t start: no place'); sys.exit(2)")
    fails = script("fails", "import sys; sys.exit(1)")
    with running(database_url, wrong, fails) as jobs:
        added = jobs.add_job("packhorse/pipeline/wrong")
        done = ended(database_url, added.job.number, "ERROR")
        assert done["result"] == "exit code 2: can't start: no place"
        added = jobs.add_job("packhorse/pipeline/fails")
        eventually(lambda: job(database_url, added.job.number)["result"] == "exit code 1: ")
        assert job(database_url, added.job.number)["state"] == "QUEUED"


def test_a_task_that_is_stopped_is_asked_to_end(database_url: str, tmp_path: Path) -> None:
    began, heard = tmp_path / "began", tmp_path / "heard"
    waits = (
        "import pathlib, signal, sys\n"
        f"def end(*_): pathlib.Path({str(heard)!r}).touch(); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(began)!r}).touch()\n"
        "while True: signal.pause()"
    )
    with running(database_url, script("archive", waits)) as jobs:
        added = jobs.add_job("packhorse/pipeline/archive")
        eventually(began.exists)
        jobs.stop(added.job.number)
        ended(database_url, added.job.number, "STOPPED")
    assert heard.exists()


def test_what_a_task_leaves_behind_does_not_keep_its_place(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that its own one has started may hold its output open after that has ended."""
    monkeypatch.setattr("packhorse_services.pipeline.worker._GRACE_S", 1.0)
    left = tmp_path / "left"
    leaves = (
        "import pathlib, subprocess\n"
        f"pathlib.Path({str(left)!r}).write_text(str(subprocess.Popen(['sleep', '600']).pid))"
    )
    with running(database_url, script("archive", leaves)) as jobs:
        added = jobs.add_job("packhorse/pipeline/archive")
        try:
            ended(database_url, added.job.number, "SUCCEEDED")
        finally:
            os.kill(int(left.read_text()), signal.SIGKILL)


def schedules(url: str) -> dict[str, tuple[bool, str]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT name, suspended, topic FROM jobs.schedule").fetchall()
    return {name: (suspended, topic) for name, suspended, topic in rows}


@pytest.fixture
def worker(database_url: str, tmp_path: Path) -> Iterator[Callable[[], Process]]:
    """Start `packhorse-pipeline worker` as a real process."""
    environment = {
        "PACKHORSE_DATABASE_URL": database_url,
        "PACKHORSE_TABLES_URL": str(tmp_path / "tables"),
        "PACKHORSE_INSTANCE_ID": "pipeline-0",
        "PACKHORSE_AUTHENTICATION": "false",
    }
    command = (sys.executable, "-m", "packhorse_services.pipeline", "worker")
    process = Process("worker", command, environment, tmp_path)

    def start() -> Process:
        process.start()
        return process

    yield start
    if process.running:
        process.kill()


def test_the_worker_declares_suspended_schedules_and_what_it_consumes(
    database_url: str, worker: Callable[[], Process]
) -> None:
    process = worker()
    names = {f"packhorse.pipeline.{task.name}": (True, task.topic) for task in TASKS}
    eventually(lambda: schedules(database_url) == names, timeout=180, what="they are declared")
    with psycopg.connect(database_url) as connection:
        [(reported,)] = eventually(
            lambda: connection.execute(
                "SELECT properties ->> 'packhorse.consumers' FROM topology.instance "
                "WHERE id = 'pipeline-0'"
            ).fetchall()
        )
    assert set(reported.split(",")) == {task.topic for task in TASKS}
    ready = json.loads(first_lines(process, 1)[0])
    eventually(lambda: is_ready(ready["url"]), timeout=120)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 0
