"""`packhorse up` as a user runs it: started, killed, started again, ended."""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.demo.command import holdings
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.command_line import Up, data_folder, packhorse
from tests.harness.imported import COMMAND_LINE
from tests.harness.waiting import eventually, is_gone

SUBSCRIBERS = ["sub1", "sub2"]
JOURNALS = ["sql", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.depth])]
WAIT_S = 180.0
WAIT = ("--wait", "--timeout", "300")


@pytest.fixture
def journal(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "sql":
        return []
    url: str = request.getfixturevalue("kafka").url
    return ["--journal", url, "--topic-prefix", f"up{uuid.uuid4().hex[:12]}"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with data_folder() as folder:
        yield folder


def _import(stack: Up, folder: Path, text: str) -> None:
    files = folder / "files" / "deeper"
    files.mkdir(parents=True, exist_ok=True)
    for number in range(50):
        (files / f"page-{number}.html").write_text(f"{text} {number}")
    packhorse("content", "import", str(folder / "files"), "--at", "/site", data=stack.data)


def _all_equal(stack: Up) -> bool:
    author, *others = holdings(DataDirectory(stack.data), SUBSCRIBERS, "/site")
    return author.nodes == 52 and all(one.equals(author) for one in others)


def _distributes(stack: Up) -> bool:
    tried = packhorse(
        *("distribute", "--action", "test", "--wait", "--timeout", "5"),
        data=stack.data,
        check=False,
    )
    return tried.returncode == 0


def _goes_on(killed: Up, following: Up, folder: Path) -> None:
    """End everything with SIGKILL while a package is under way."""
    _import(killed, folder, "before")
    packhorse("distribute", "--deep", "/site", *WAIT, data=killed.data)
    assert _all_equal(killed)
    _import(killed, folder, "after")
    os.kill(killed.pids()["sub2"], signal.SIGSTOP)  # so that one certainly has not imported it
    packhorse("distribute", "--deep", "/site", data=killed.data)
    killed.kill_everything()
    following.start()
    following.ready()
    eventually(
        lambda: _all_equal(following),
        timeout=WAIT_S,
        what="the package of before the kill is imported",
    )


def _renews(stack: Up) -> None:
    first = stack.pids()
    dying = {first[name] for name in ("publisher", "sub1", "postgres")}
    for pid in dying:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not dying & {*stack.pids().values()}, what="all are renewed", timeout=WAIT_S)
    eventually(lambda: _distributes(stack), timeout=WAIT_S, what="the renewed stack distributes")


def _leaves_nothing(killed: Up, following: Up) -> None:
    """End the supervisor alone: its server stays and is taken over, its programs end."""
    before = killed.pids()
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    programs = [pid for name, pid in before.items() if name != "postgres"]
    eventually(
        lambda: all(is_gone(pid) for pid in programs),
        timeout=WAIT_S,
        what="no program outlives the supervisor",
    )
    following.start()
    following.ready()
    after = following.pids()
    assert after["postgres"] == before["postgres"], "the server was adopted"
    assert following.stop() == 0, following.said()
    eventually(lambda: all(is_gone(pid) for pid in after.values()), what="nothing is left behind")


def _shows_what_cannot_start(stack: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    known = stack.log.stat().st_size
    monkeypatch.setenv("PACKHORSE_OUTBOX_PACKAGES", "0")
    stack.start()
    assert stack.wait() == 1
    assert stack.output.read_text() == ""
    said = stack.log.read_bytes()[known:].decode()
    assert "ended with exit code" in said
    assert "PACKHORSE_OUTBOX_PACKAGES" in said, "the program's own last words"
    assert not EmbeddedPostgres(DataDirectory(stack.data).postgres).running()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("journal", JOURNALS, indirect=True)
def test_one_folder_outlives_whatever_happens_to_its_stacks(
    folder: Path, journal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--subscribers", "2", *journal)
    forked, real = Up(folder, *options), Up(folder, *options, module=COMMAND_LINE)
    real.start()
    real.ready()
    _goes_on(real, forked, folder)
    _renews(forked)
    _leaves_nothing(forked, real)
    _shows_what_cannot_start(forked, monkeypatch)


def test_a_folder_in_use_is_refused(up: Up) -> None:
    second = packhorse("up", "--data", str(up.data), check=False)
    assert (second.returncode, second.stdout) == (4, "")
    assert f"in use by process {up.pid}" in second.stderr


def test_a_port_that_is_taken_is_refused_before_anything_runs(up: Up, folder: Path) -> None:
    port = DataDirectory(up.data).running().publisher.rpartition(":")[2]
    refused = packhorse("up", "--data", str(folder / "data"), "--port", port, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"port {port} is in use" in refused.stderr


def test_json_is_one_line_with_everything(up: Up) -> None:
    stack = json.loads(up.output.read_text())
    assert sorted(stack) == [
        *("cleanup", "console", "content", "data", "jobs", "pids", "publisher", "subscribers"),
        *("token_file", "topology"),
    ]
    assert sorted(stack["subscribers"]) == ["sub1", "sub2", "sub3"]
    around = [f"topology-{name}" for name in stack["subscribers"]]
    assert sorted(stack["pids"]) == sorted(
        [
            *("publisher", "content", "cleanup", "topology", "jobs", "console", "postgres"),
            *(*stack["subscribers"], *around),
        ]
    )
    assert Path(stack["token_file"]).stat().st_mode & 0o777 == 0o600


def test_its_programs_are_shown_as_instances_of_a_cluster_for_each_database(up: Up) -> None:
    def clusters() -> list[list[tuple[str, str]]]:
        said = packhorse("get", "instances", "-o", "json", data=up.data).stdout
        document = json.loads(said)
        shown = [
            sorted((one["id"], one["properties"]["packhorse.role"]) for one in each["instances"])
            for each in document["clusters"]
        ]
        return sorted(shown) if document["current"] else []

    authors = ("cleanup", "content", "jobs", "publisher", "topology")
    wanted = [
        [(name, name) for name in authors],
        *(
            [(f"sub{number}", "subscriber"), (f"topology-sub{number}", "topology")]
            for number in (1, 2, 3)
        ),
    ]
    eventually(lambda: clusters() == wanted, timeout=WAIT_S, what="all are known to all")
