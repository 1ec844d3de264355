"""`packhorse demo` on a folder of somebody's own, names and all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.command_line import packhorse_program

NAMES = ["plain.txt", "with space.html", "Größe ✓.md", 'quote\'s "both".txt', "100%.txt", ".hidden"]


def test_the_demo_proves_that_a_folder_arrived(tmp_path: Path) -> None:
    for folder in ("", "deep/er"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(NAMES):
            (tmp_path / folder / name).write_bytes(bytes(range(256)) * number)
    done = packhorse_program("demo", "--content", str(tmp_path), "--subscribers", "2")
    lines = [line.split() for line in done.stdout.splitlines()]
    equal = {line[0]: line[-1] for line in lines if line and line[0] in ("author", "sub1", "sub2")}
    assert done.stdout.count(" yes") == 3, done.stdout
    assert sorted(equal) == ["author", "sub1", "sub2"]
    assert "curl http://127.0.0.1:" in done.stdout


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_demo_that_a_signal_ends_removes_its_folder(tmp_path: Path, name: str) -> None:
    code = f"""
import contextlib, pathlib, signal, sys
from packhorse_services.cli.demo import command

@contextlib.contextmanager
def stack_on(folder, *options):
    pathlib.Path(folder, "data").touch()
    yield signal.raise_signal(signal.{name})

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as where no nohup ignores it
command.stack_on = stack_on
command.demo(None, 1, None, stay=False)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == 128 + getattr(signal, name)
    assert not list(tmp_path.iterdir())


def test_the_demo_of_an_empty_folder_says_so(tmp_path: Path) -> None:
    done = packhorse_program("demo", "--content", str(tmp_path), "--subscribers", "1", check=False)
    assert done.returncode == 2
    assert "no file in" in done.stderr
