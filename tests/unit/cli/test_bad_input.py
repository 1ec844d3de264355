"""What no command can use is refused with a sentence and an exit code, never with a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from packhorse_services.cli.app import run

NOT_UTF8 = "\udcff"
"""A byte of the command line, as Python has it."""
NOBODY = ("--server", "http://127.0.0.1:1", "--token", "t")


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "queue", NOT_UTF8),
        ("get", "distributions", "--user", NOT_UTF8),
        ("get", "jobs", "--topic", NOT_UTF8),
        ("events", "--subscriber", NOT_UTF8),
        ("events", "--seconds", "inf"),
        ("events", "--seconds", "1e300"),
        ("job", "add", "a", "--wait", "--timeout", "inf"),
        ("job", "add", "a", "--wait", "--timeout", "nan"),
    ],
)
def test_what_cannot_be_sent_or_waited_for_is_refused_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run([*NOBODY, *arguments]) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("retry sub1", "No such command 'sub1'. Say `packhorse retry subscriber …`."),
        ("resume sub1", "No such command 'sub1'."),
    ],
)
def test_of_a_group_of_one_command_this_is_named(
    capsys: pytest.CaptureFixture[str], command: str, says: str
) -> None:
    assert run(command.split()) == 2
    [line] = [one for one in capsys.readouterr().err.splitlines() if "No such command" in one]
    assert line.strip("│ ") == says


def test_a_token_file_that_is_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_bytes(b"\xff\x00")
    assert run(["--token-file", str(tmp_path / "token"), "token"]) == 2
    assert "the token file can't be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("distribute --from-file - --producer x <&-", 2, "stdin is closed"),
        ("token >&-", 0, ""),
        ("token >/dev/full", 1, "No space left on device"),
    ],
)
def test_what_is_closed_or_full_ends_a_command_in_order(command: str, code: int, says: str) -> None:
    program = ("sh", "-c", f'"$@" {command}', "sh", sys.executable, "-m", "packhorse_services.cli")
    done = subprocess.run([*program, *NOBODY], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == bool(says)
