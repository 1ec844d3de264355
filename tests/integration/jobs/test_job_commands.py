"""`packhorse job …` and `packhorse get jobs` as a user types them, against the real service."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from packhorse_services.cli.client.failures import Exit
from tests.harness.command_line import packhorse
from tests.harness.imported import COMMAND_LINE
from tests.harness.jobs.asking import ask, emptied
from tests.harness.jobs.site import JobsSite, jobs_site
from tests.harness.postgres import Databases
from tests.harness.processes import Process
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[JobsSite]:
    with jobs_site(databases.new()) as site:
        yield site


@pytest.fixture
def site(running: JobsSite) -> JobsSite:
    return emptied(running)


def command(site: JobsSite, *arguments: str) -> subprocess.CompletedProcess[str]:
    return packhorse("--server", site.url, "--token", "operator", *arguments, check=False)


def test_a_job_from_its_beginning_to_its_end(site: JobsSite) -> None:
    given = ("job", "add", "images/thumbnail", "--properties", '{"size": 12}', "--key", "once")
    number = command(site, *given).stdout.strip()
    assert command(site, *given).stdout.strip() == number, "the key makes it one"
    found = command(site, "get", "jobs", "--where", "size>=12", "--state", "queued", "-o", "name")
    assert found.stdout.split() == [number]
    assert command(site, "job", "retry", number).returncode == Exit.CONFLICT
    assert command(site, "job", "stop", number).stdout.strip() == number
    followed = command(site, "job", "tail", number)
    assert followed.returncode == Exit.FAILED
    assert "STOPPED" in followed.stderr
    assert command(site, "job", "retry", number).returncode == 0
    [shown] = json.loads(command(site, "get", "jobs", "-o", "json").stdout)["jobs"]
    assert (shown["number"], shown["state"]) == (int(number), "QUEUED")
    for left in (["DROPPED"], []):
        assert command(site, "job", "remove", number).returncode == 0
        jobs = json.loads(command(site, "get", "jobs", "-o", "json").stdout)["jobs"]
        assert [one["state"] for one in jobs] == left


def test_a_job_that_runs_is_taken_away_on_demand(site: JobsSite) -> None:
    number = str(site.active(600_000))
    assert command(site, "job", "remove", number).returncode == Exit.CONFLICT
    assert command(site, "job", "remove", "--even-active", number).returncode == 0
    assert site.count("DROPPED") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("get", "job", "4711"), Exit.NOT_FOUND, "there is no job 4711"),
        (("get", "jobs", "--state", "lost"), Exit.USAGE, "state"),
        (("get", "jobs", "--topic", "/images"), Exit.USAGE, "topic"),
        (("get", "jobs", "--where", "size!3"), Exit.USAGE, "no operator"),
        (("job", "add", "/images"), Exit.USAGE, "topic"),
        (("job", "add", "a", "--only-on", "@nobody"), Exit.USAGE, "only_on"),
    ],
)
def test_what_is_wrong_is_reported(
    site: JobsSite, arguments: tuple[str, ...], code: Exit, says: str
) -> None:
    done = command(site, *arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr


def test_a_queue_and_a_schedule_are_suspended_and_resumed(site: JobsSite) -> None:
    definition = {"period_s": 86_400, "topic": "images/sweep"}
    assert ask(site, "PUT", "/schedules/nightly", json=definition).is_success
    for kind, name in (("job-queue", "main"), ("schedule", "nightly")):
        for action, suspended in (("suspend", True), ("suspend", True), ("resume", False)):
            done = command(site, action, kind, name)
            assert (done.returncode, done.stdout.strip()) == (0, name), done.stderr
            document = ask(site, "GET", f"/{kind}s/{name}", "viewer").json()
            assert document["suspended"] is suspended
        assert command(site, "suspend", kind, "no/such").returncode == Exit.NOT_FOUND
        viewer = ("--server", site.url, "--token", "viewer", "suspend", kind, name)
        refused = packhorse(*viewer, check=False)
        assert (refused.returncode, "--token" in refused.stderr) == (Exit.FAILED, True)


def test_topics_that_wait_for_one_instance_are_shown(site: JobsSite) -> None:
    site.jobs.add_job("images/thumbnail", only_on="worker-9")
    shown = command(site, "get", "job-topics").stdout.splitlines()
    assert shown[1].split()[-1] == "worker-9", shown
    document = json.loads(command(site, "get", "job-topics", "-o", "json").stdout)
    assert document["topics"][0]["unconsumed_on"][0]["waiting"] == 1


@contextmanager
def following(site: JobsSite, folder: Path, name: str, *options: str) -> Iterator[Process]:
    arguments = ("--server", site.url, "--token", "operator", "job", "tail", *options)
    follower = Process(name, (sys.executable, "-m", COMMAND_LINE, *arguments), {}, folder)
    follower.start()
    try:
        yield follower
    finally:
        follower.kill()


def reported(follower: Process, count: int, job: int) -> list[list[str]]:
    """Return the words of so many lines on a job, once they are there.

    What became of an earlier test's jobs may still be reported.
    """

    def look() -> list[list[str]]:
        words = [line.split() for line in follower.lines()]
        lines = [line for line in words if line[2:3] == [str(job)]]
        assert len(lines) == count, follower.said()
        return lines

    return eventually(look, timeout=120)


def hears(follower: Process, site: JobsSite) -> bool:
    """Add a job; return whether any such job has been reported, as all that comes later will be."""
    site.jobs.add_job("images/ignored")
    return "images/ignored" in follower.output.read_text()


def test_what_becomes_of_jobs_is_followed_and_goes_on_where_it_was(
    site: JobsSite, tmp_path: Path
) -> None:
    with following(site, tmp_path, "first", "-o", "wide") as follower:
        eventually(lambda: hears(follower, site), what="it follows")
        number = site.jobs.add_job("images/thumbnail", id="cover").job.number
        site.jobs.stop(number)
        added, stopped = reported(follower, 2, number)
    assert added[1:6] == ["ADDED", str(number), "images/thumbnail", "cover", "QUEUED"]
    assert stopped[1:6] == ["CANCELLED", str(number), "images/thumbnail", "cover", "STOPPED:"]
    with following(site, tmp_path, "second", "--after", added[-1], "-o", "wide") as follower:
        (again,) = reported(follower, 1, number)
    assert again[:-1] == stopped[:-1]  # the place to go on from counts other transactions, too
