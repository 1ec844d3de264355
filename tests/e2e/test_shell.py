"""The command line as a shell meets it: options behind the verb, and names that bash completes."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.stack.ports import free_port
from tests.harness.command_line import Up, packhorse_program
from tests.harness.shell import forked_commands
from tests.harness.waiting import eventually

INSTALLED = Path(sys.executable).parent


@pytest.fixture
def commands() -> Iterator[Path]:
    with forked_commands() as folder:
        yield folder


def completed(programs: Path, *words: str) -> list[str]:
    """Return what bash completes the last word to, by the script of that folder's program."""
    script = """
        export PATH=$1:$PATH; shift
        eval "$(_PACKHORSE_COMPLETE=source_bash packhorse)"
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        function=$(complete -p packhorse | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        $function packhorse
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(programs), "packhorse", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_the_names_of_what_is_there(up: Up, commands: Path) -> None:
    data, found = ("--data", str(up.data)), partial(completed, commands)

    def completes(*words: str, to: list[str], by: Path = commands) -> None:
        """Wait for it: a stack that does not answer within 2 s completes nothing."""
        eventually(lambda: completed(by, *words) == to, what=f"{words} completed")

    completes(*data, "get", "queue", "", to=["sub1", "sub2", "sub3"], by=INSTALLED)
    completes("get", "queue", *data, "sub2", to=["sub2"])
    paused = partial(found, *data, "pause", "subscriber", "sub")
    eventually(lambda: paused()[:1] == ["sub1"], what="a subscriber is completed")
    assert "queues" in found(*data, "get", "que")
    sent = packhorse_program("distribute", "--action", "Test", *data).stdout.strip()
    eventually(lambda: sent in found(*data, "get", "distribution", "dstr"), what="it is listed")
    assert found("--server", "http://127.0.0.1:1", "get", "queue", "") == []
    completes(*data, "suspend", "job-queue", "house", to=["housekeeping"])
    completes(*data, "resume", "schedule", "packhorse.clean", to=["packhorse.cleanup"])
    completes(*data, "get", "jobs", "--queue", "house", to=["housekeeping"])
    packhorse_program("job", "add", "packhorse/cleanup/run", *data)
    topics = partial(found, *data, "get", "jobs", "--topic", "packhorse/c")
    eventually(lambda: "packhorse/cleanup/run" in topics(), what="the topic is completed")


def test_whom_to_ask_is_said_behind_the_verb_too(up: Up) -> None:
    stack = json.loads(up.output.read_text())
    token = packhorse_program("token", "--data", str(up.data)).stdout.strip()
    by_data = packhorse_program("get", "subscribers", "-o", "name", "--data", str(up.data))
    assert by_data.stdout.split() == ["sub1", "sub2", "sub3"]
    named = ("--server", stack["publisher"], "--token", token)
    assert packhorse_program("get", "subscribers", *named, "-o", "name").stdout == by_data.stdout
    wrong = packhorse_program(
        "--token", token, "get", "queues", "--server", "http://127.0.0.1:1", check=False
    )
    assert "nobody answers at http://127.0.0.1:1" in wrong.stderr
    for verb in (("content", "import"), ("content",), ("cleanup",), ("get", "queue")):
        assert "Usage: packhorse" in packhorse_program(*verb, "-h").stdout
    exported = packhorse_program(
        *("content", "export", "/none", "nowhere", "--data", str(up.data)), check=False
    )
    assert exported.returncode == 3


def test_a_taken_port_is_reported_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = str(taken.getsockname()[1])
        refused = packhorse_program(
            "up", "--port", port, "--data", str(tmp_path / "d"), check=False
        )
    assert refused.returncode == 1
    assert f"port {port} is in use" in refused.stderr
    assert "PostgreSQL" not in refused.stderr
    assert not (tmp_path / "d" / "postgres").exists()


def test_a_folder_in_use_is_reported_before_ports_that_its_stack_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, DataDirectory(tmp_path).claimed():
        port = str(taken.getsockname()[1])
        second = packhorse_program("up", "--port", port, data=tmp_path, check=False)
    assert second.returncode == 4
    assert "is in use by process" in second.stderr
