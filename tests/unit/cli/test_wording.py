"""What the command line says: its own verbs, and when."""

import subprocess
import sys
import time

import pytest

from packhorse.client.errors import Misused
from packhorse.client.problems import refused_outcome
from packhorse_services.cli.app import run
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import Exit, exit_code, in_words_of_commands, words
from packhorse_services.cli.distribute.replay import ReplayRequest, replay


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ("stop it: PUT /subscribers/sub1/stop, and wait", "`packhorse stop subscriber sub1`, and"),
        (
            "stop it first (`packhorse stop subscriber a`, or PUT /subscribers/a/stop), and wait",
            "stop it first (`packhorse stop subscriber a`), and wait",
        ),
        (
            "`packhorse get errors a` or GET /queues/a/errors lists them",
            "`packhorse get errors a` lists them",
        ),
        (
            "then PATCH /subscribers/sub1/offset, then PUT x",
            "then `packhorse reset offset sub1`, then PUT x",
        ),
        ("GET /queues/sub1/errors lists them", "`packhorse get errors sub1` lists them"),
        ("GET /queues/sub1 shows what", "`packhorse get queue sub1` shows what"),
        ("GET /job-queues lists them", "`packhorse get job-queues` lists them"),
        ("GET /subscribers lists them", "`packhorse get subscribers` lists them"),
        ("POST /distribute with ADD", "`packhorse distribute` with ADD"),
        ("'/GET /queues' is a path", "'/GET /queues' is a path"),
    ],
)
def test_requests_are_reported_as_commands(reported: str, shown: str) -> None:
    assert shown in in_words_of_commands(reported) or reported == shown
    assert in_words_of_commands(reported).count("`packhorse") <= 1


def test_a_refusal_says_each_thing_once() -> None:
    problem = {
        "type": "/problems/not-found",
        "title": "There is nothing here",
        "detail": "'/a' does not exist",
        "errors": [{"pointer": "#/paths/0", "detail": "'/a' does not exist"}],
    }
    refused = refused_outcome({"status": 404, "problem": problem}, words())
    assert str(refused) == "There is nothing here (404)\n'/a' does not exist"


def test_a_producer_s_name_is_checked_before_anything_is_asked() -> None:
    with pytest.raises(Misused, match="letters of ASCII, digits") as failed:
        replay(
            Connection(server="http://127.0.0.1:1").publisher(),
            ReplayRequest("-", "a b/c", "ADD", deep=False),
        )
    assert exit_code(failed.value) is Exit.USAGE


def test_what_is_shown_again_off_a_terminal_has_its_time(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []

    def pause(_: float) -> None:
        if len(shown) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pause)
    with pytest.raises(KeyboardInterrupt):
        output.again(lambda: shown.append(1), watch=True)
    said = capfd.readouterr()
    assert said.out == "\n", "only data, and a line between"
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("# 20") and line.endswith("Z") for line in lines)
    output.again(lambda: shown.append(1), watch=False)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["get", "job", "abc"], "this must be an integer"),
        (["distribute", "--action", "nonsense", "/a"], "'nonsense' is not one of 'add'"),
        (["up", "--subscribers", "1000"], "this must be less than or equal to 100"),
    ],
)
def test_a_refused_value_is_reported_without_the_words_of_a_library(
    words: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == Exit.USAGE
    reported = " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert says in reported
    assert "Value error" not in reported
    assert "Input should" not in reported


def test_a_command_starts_without_what_only_services_need() -> None:
    look = "import sys, packhorse_services.cli.app; print(*sys.modules)"
    requested = subprocess.run(
        [sys.executable, "-c", look], check=True, capture_output=True, text=True
    )
    loaded = set(requested.stdout.split())
    assert not loaded & {"psycopg", "sqlalchemy", "fastapi", "asyncio", "boto3", "pyspark"}


def test_help_begins_with_what_most_need_and_names_variables_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["up", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("--data") < shown.index("--topic-prefix")
    assert "[env var: PACKHORSE_TOPIC_DISCOVERY]" in shown
