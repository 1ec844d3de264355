"""The supervisor of `packhorse up`, on programs as small as they can be."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.stack_options import StackOptions
from packhorse_services.cli.stack import up
from packhorse_services.cli.stack.child import ChildProcess, ChildProgram, bound_log
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.cli.stack.layout import choose_ports, database_names, plan
from packhorse_services.cli.stack.ports import free_port
from packhorse_services.cli.stack.postgres_binaries import PostgresFailed
from packhorse_services.cli.stack.supervisor import StartFailed, Supervisor
from packhorse_services.cli.stack.up import _Stack
from tests.harness.waiting import eventually, is_gone

_SERVER = """
import http.server, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(sys.argv[1], "ends", flush=True)))
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print(sys.argv[1], "begins", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Ready).serve_forever()
"""


def _program(name: str, code: str = _SERVER) -> ChildProgram:
    port = free_port()
    return ChildProgram(
        name, (sys.executable, "-c", code, name, str(port)), {}, f"http://127.0.0.1:{port}"
    )


class Stage:
    """Builds supervisors whose children end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reported: list[str] = []
        self.children: list[ChildProcess] = []

    def supervisor(self, *programs: ChildProgram, **options: int) -> Supervisor:
        children = [
            ChildProcess(program, self.folder / f"{program.name}.log") for program in programs
        ]
        self.children += children
        return Supervisor(children, self.reported.append, **options)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    for child in stage.children:
        child.end_by(deadline=0)


def test_all_are_ready_after_the_start(stage: Stage) -> None:
    supervisor = stage.supervisor(_program("one"), _program("two"))
    supervisor.start(lambda: False, timeout=300)
    assert [child.ended() for child in stage.children] == [None, None]


def test_what_dies_is_run_again_and_reported(stage: Stage) -> None:
    supervisor = stage.supervisor(_program("one"))
    supervisor.start(lambda: False, timeout=300)
    before = supervisor.pids()["one"]
    assert not supervisor.is_renewing()
    os.kill(before, signal.SIGKILL)
    eventually(lambda: not supervisor.tend() and supervisor.is_renewing())
    eventually(supervisor.tend)
    assert not supervisor.is_renewing()
    assert supervisor.pids()["one"] != before
    assert stage.reported == ["one was ended by signal 9; again in 0.0 s"]


def test_what_can_not_be_run_again_now_is_tried_again(stage: Stage) -> None:
    supervisor = stage.supervisor(_program("one"))
    supervisor.start(lambda: False, timeout=300)
    before = supervisor.pids()["one"]
    os.kill(before, signal.SIGKILL)
    eventually(lambda: not supervisor.tend() and supervisor.is_renewing())
    full = patch.object(ChildProcess, "spawn", side_effect=BlockingIOError("no more processes"))
    with full, pytest.raises(BlockingIOError):
        eventually(supervisor.tend)
    assert supervisor.is_renewing()
    eventually(supervisor.tend)
    assert supervisor.pids()["one"] != before
    assert len(stage.reported) == 1


def test_a_start_that_fails_shows_the_last_lines(stage: Stage) -> None:
    supervisor = stage.supervisor(_program("broken", "raise SystemExit('no such database')"))
    with pytest.raises(StartFailed, match=r"broken ended with exit code 1:\nno such database"):
        supervisor.start(lambda: False, timeout=300)


def test_a_program_that_never_is_ready_is_named(stage: Stage) -> None:
    supervisor = stage.supervisor(_program("mute", "input_ = __import__('time').sleep(3600)"))
    with pytest.raises(StartFailed, match="mute was not ready in time"):
        supervisor.start(lambda: False, timeout=0.3)


def test_some_start_at_a_time(stage: Stage) -> None:
    programs = map(_program, ("one", "two", "three"))
    supervisor = stage.supervisor(*programs, at_once=1)
    supervisor.start(lambda: bool(stage.children[1].pid), timeout=300)
    assert [bool(child.pid) for child in stage.children] == [True, True, False]


def test_the_end_is_asked_for_and_waited_for(stage: Stage) -> None:
    supervisor = stage.supervisor(_program("first"), _program("second"))
    supervisor.start(lambda: False, timeout=300)
    supervisor.stop()
    assert [child.ended() for child in stage.children] == [0, 0]
    assert [child.log.read_text().split()[-1] for child in stage.children] == ["ends", "ends"]


def test_what_ignores_the_request_is_killed(stage: Stage) -> None:
    deaf = _SERVER.replace('lambda *_: sys.exit(print(sys.argv[1], "ends", flush=True))', "print")
    supervisor = stage.supervisor(_program("deaf", deaf))
    supervisor.start(lambda: False, timeout=300)
    stage.children[0].request_stop()
    stage.children[0].end_by(time.monotonic() + 0.2)
    assert stage.children[0].ended() == -signal.SIGKILL


@pytest.mark.parametrize(("inherited", "ended"), [("SIG_IGN", False), ("SIG_DFL", True)])
def test_a_hangup_that_nohup_ignores_ends_nothing(inherited: str, ended: bool) -> None:
    code = f"""
import signal
from packhorse_services.cli.stack.interruptions import Interruptions
signal.signal(signal.SIGHUP, signal.{inherited})
interruptions = Interruptions()
signal.raise_signal(signal.SIGHUP)
print(interruptions.ended())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(ended)


def test_a_child_does_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys, time
from packhorse_services.cli.stack.child import ChildProcess, ChildProgram
sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
program = ChildProgram("x", sleeper, {{}}, "")
child = ChildProcess(program, pathlib.Path({str(tmp_path / "x.log")!r}))
child.spawn()
print(child.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        parent.kill()
    eventually(lambda: is_gone(child_pid))


def test_a_long_log_is_moved_aside_while_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with log.open("a") as writer:
        writer.write("old\n" * 100)
        writer.flush()
        bound_log(log, limit=100)
        writer.write("new\n")
    assert log.read_text() == "new\n"
    assert (tmp_path / "x.log.1").read_text() == "old\n" * 100


def test_a_renewal_that_fails_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stack = _stack(tmp_path, monkeypatch, ["full disk", "full disk", "no shared memory", ""])
    for _ in range(4):
        stack.tend()
    said = [line for line in capfd.readouterr().err.splitlines() if line]
    assert said == [
        "PostgreSQL has ended; starting it again",
        "trying again: full disk",
        "trying again: no shared memory",
    ]
    assert DataDirectory(tmp_path).running_file.exists()


def test_what_was_renewed_is_published_once_the_disk_has_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = _stack(tmp_path, monkeypatch, [""])
    published = DataDirectory(tmp_path).running_file
    published.with_suffix(".new").mkdir()  # where it is drafted
    stack.tend()
    assert not published.exists()
    published.with_suffix(".new").rmdir()
    stack.tend()
    assert published.exists()


class _DeadPostgres(EmbeddedPostgres):
    """A server that starts when it has nothing more to complain of."""

    complaints: list[str]

    def running(self) -> bool:
        return not self.complaints

    def start(self) -> None:
        if complaint := self.complaints.pop(0):
            raise OSError(complaint) if "disk" in complaint else PostgresFailed(complaint)

    def pid(self) -> int:
        return 1


def _stack(folder: Path, monkeypatch: pytest.MonkeyPatch, complaints: list[str]) -> _Stack:
    """Return a stack whose programs are not started; its server complains as it is told."""
    options = StackOptions(data=folder, port=0, subscribers=0)
    urls = dict.fromkeys(database_names(options), "postgresql://nobody@127.0.0.1/none")
    programs = plan(options, urls, choose_ports(options))
    postgres = _DeadPostgres(folder / "postgres")
    postgres.complaints = complaints
    monkeypatch.setattr(up, "_known_token", lambda _: None)
    return _Stack(DataDirectory(folder), postgres, programs)


def test_old_words_are_not_the_last_ones(stage: Stage) -> None:
    (stage.folder / "broken.log").write_text("of an earlier run\n")
    supervisor = stage.supervisor(_program("broken", "raise SystemExit('of this run')"))
    with pytest.raises(StartFailed, match=r"code 1:\nof this run$"):
        supervisor.start(lambda: False, timeout=300)


@pytest.mark.parametrize(
    ("own", "users"),
    [
        ("PACKHORSE_JOURNAL_URL", "PACKHORSE_JOURNAL_URL_FILE"),
        ("PACKHORSE_CONNECTOR_SHARED_KEY_FILE", "PACKHORSE_CONNECTOR_SHARED_KEY"),
    ],
)
def test_what_contradicts_a_setting_is_not_inherited(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, own: str, users: str
) -> None:
    monkeypatch.delenv("PACKHORSE_PORTS")  # for the tests' own stacks
    monkeypatch.setenv(users, "/of/the/user")
    monkeypatch.setenv("PACKHORSE_LOG_LEVEL", "DEBUG")
    code = "import os; raise SystemExit(sorted(k for k in os.environ if 'PACKHORSE' in k))"
    command = (sys.executable, "-c", code)
    child = ChildProcess(
        ChildProgram("x", command, {own: "of the stack"}, ""),
        stage.folder / "x.log",
    )
    child.spawn()
    eventually(lambda: child.ended() is not None)
    assert child.last_lines() == f"['{own}', 'PACKHORSE_LOG_LEVEL']"
