"""Programs of `packhorse up` that are forked: what they are for others is what started ones are."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from packhorse_services.cli.stack.child import ChildProcess, ChildProgram
from packhorse_services.cli.stack.forked import ForkedProcess, ForkServer
from packhorse_services.cli.stack.ports import free_port
from tests.harness.postgres import Databases
from tests.harness.waiting import eventually

TOPOLOGY = (sys.executable, "-m", "packhorse_services.topology")
WAIT_S = 120.0


@pytest.fixture(scope="module")
def forks(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """One server for all: it needs longer to import than a program does to serve.

    It ends with what it has forked before the databases of its programs are dropped.
    """
    log = tmp_path_factory.mktemp("forks") / "forks.log"
    with closing(ForkServer(log)) as server:
        yield server


def serving(forks: ForkServer, log: Path, database_url: str) -> ForkedProcess:
    """Fork a topology service that serves."""
    port = free_port()
    settings = {
        "PACKHORSE_DATABASE_URL": database_url,
        "PACKHORSE_PORT": str(port),
        "PACKHORSE_AUTHENTICATION": "false",
    }
    found = forks.fork(TOPOLOGY, {**os.environ, **settings}, log)
    assert found is not None, "Linux can fork"
    eventually(lambda: _assert_listening(port), timeout=WAIT_S, what="the program serves")
    return found


def _assert_listening(port: int) -> bool:
    with closing(socket.socket()) as connection:
        assert connection.connect_ex(("127.0.0.1", port)) == 0
    return True


def test_a_program_that_cant_start_says_why_in_its_log_and_by_its_exit_code(
    forks: ForkServer, tmp_path: Path
) -> None:
    program = ChildProgram("topology", TOPOLOGY, {"PACKHORSE_PORT": "no number"}, "")
    child = ChildProcess(program, tmp_path / "topology.log", forks)
    child.spawn()
    eventually(lambda: _assert_ended(child, 2), timeout=WAIT_S, what="it has ended")
    assert "PACKHORSE_PORT: " in child.last_lines()
    assert child.pid not in (0, os.getpid())


def _assert_ended(child: ChildProcess, code: int) -> bool:
    assert child.ended() == code
    return True


def test_a_program_has_a_session_of_its_own_and_ends_by_sigterm(
    forks: ForkServer, tmp_path: Path, database_url: str
) -> None:
    program = serving(forks, tmp_path / "log", database_url)
    assert os.getsid(program.pid) == program.pid
    assert program.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0)
    program.terminate()
    assert program.wait(WAIT_S) == 0
    program.kill()  # it has ended: nothing happens


def test_a_killed_program_is_reported_as_killed_and_the_others_go_on(
    forks: ForkServer, tmp_path: Path, database_url: str
) -> None:
    other = serving(forks, tmp_path / "other", database_url)
    program = serving(forks, tmp_path / "log", database_url)
    os.kill(program.pid, signal.SIGKILL)
    assert program.wait(WAIT_S) == -signal.SIGKILL
    assert other.poll() is None


def test_all_programs_end_with_their_server_and_another_server_forks_the_next(
    forks: ForkServer, tmp_path: Path, database_url: str
) -> None:
    program = serving(forks, tmp_path / "log", database_url)
    other = serving(forks, tmp_path / "log", database_url)
    os.kill(_parent_of(program.pid), signal.SIGKILL)
    assert program.wait(WAIT_S) == -signal.SIGKILL
    assert not forks.is_alive
    again = serving(forks, tmp_path / "log", database_url)
    assert again.poll() is None
    assert other.poll() == -signal.SIGKILL, "it is not one of the new server's"


def test_a_sigterm_for_all_processes_leaves_the_programs_to_end_by_their_own(
    forks: ForkServer, tmp_path: Path, database_url: str
) -> None:
    program = serving(forks, tmp_path / "log", database_url)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(_parent_of(program.pid), number)
    os.kill(program.pid, signal.SIGTERM)
    assert program.wait(WAIT_S) == 0
    assert forks.is_alive


def test_an_environment_may_hold_bytes_that_are_no_utf_8(
    forks: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.setenv("OTHER", os.fsdecode(b"caf\xe9"))
    program = serving(forks, tmp_path / "log", database_url)
    assert program.poll() is None


def _parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/stat").read_text()
    return int(status.rsplit(")", 1)[1].split()[1])


def test_what_is_no_service_is_not_forked(tmp_path: Path) -> None:
    forks = ForkServer(tmp_path / "forks.log")
    assert forks.fork((sys.executable, "-c", "print()"), {}, tmp_path / "log") is None
    assert not forks.is_alive, "no server is started in vain"
    program = ChildProgram("x", (sys.executable, "-c", "print('ran')"), {}, "")
    child = ChildProcess(program, tmp_path / "x.log", forks)
    child.spawn()
    eventually(lambda: _assert_ended(child, 0), timeout=WAIT_S, what="it has ended")
    assert child.last_lines() == "ran"
