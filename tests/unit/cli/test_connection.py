"""Where a command finds the server and the token."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from packhorse.client.addresses import read_token
from packhorse.client.errors import Misused
from packhorse.client.stack_folder import RunningStack
from packhorse_services.cli.app import run
from packhorse_services.cli.client import completion
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.failures import CommandFailed, Exit, exit_code
from tests.harness.scripted_client import ScriptedClient


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "tokens.json").write_text(json.dumps({"tokens": [{"token": "of-the-stack"}]}))
    return tmp_path


def test_a_running_stack_needs_no_options(data: Path, stack: RunningStack) -> None:
    directory = DataDirectory(data)
    with directory.claimed():
        directory.publish(stack, {})
        connection = Connection(data)
        assert connection.publisher_url() == stack.publisher
        assert connection.token() == "of-the-stack"


def test_the_stack_s_token_goes_to_no_other_server(data: Path) -> None:
    assert Connection(data, server="http://elsewhere").token() is None
    assert (
        "http://elsewhere, which is none of the stack's"
        in Connection(data, server="http://elsewhere").no_token()
    )


def test_of_several_servers_those_of_the_stack_get_its_token(
    data: Path, stack: RunningStack
) -> None:
    directory = DataDirectory(data)
    with directory.claimed():
        directory.publish(stack, {})
        others = {"content": None, "subscriber": "http://elsewhere.example"}
        found = Connection(data).addresses(others, {})
        sent = [bool(found.headers(one)) for one in ("publisher", "content", "subscriber")]
        assert sent == [True, True, False]
        named = Connection(data, token_text="mine").addresses(others, {})
        assert named.headers("subscriber") == {"Authorization": "Bearer mine"}


def test_the_stack_s_own_servers_get_its_token(data: Path, stack: RunningStack) -> None:
    directory = DataDirectory(data)
    with directory.claimed():
        directory.publish(stack, {})
        for server in (stack.content, stack.subscribers["sub1"], "http://localhost:1/"):
            assert Connection(data, server=server).token() == "of-the-stack"
        assert Connection(data, server="http://127.0.0.1:9").token() is None
        assert Connection(data).token("http://127.0.0.1:9") is None
    assert Connection(data, server=stack.content).token() is None, "it runs no longer"


def test_without_a_token_the_command_says_where_it_looked(tmp_path: Path) -> None:
    connection = Connection(tmp_path / "none")
    assert connection.token() is None
    assert str(tmp_path / "none" / "tokens.json") in connection.no_token()
    assert "packhorse up --data" in connection.no_token()


def test_options_win(data: Path) -> None:
    connection = Connection(data, server="http://elsewhere", token_text="mine")
    assert connection.publisher_url() == "http://elsewhere"
    assert connection.token() == "mine"


@pytest.mark.parametrize("variable", ["PACKHORSE_TOKEN", "PACKHORSE_TOKEN_FILE"])
def test_an_option_before_or_behind_the_verb_wins_over_both_variables(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
) -> None:
    said, other = tmp_path / "said", tmp_path / "other"
    said.write_text("said")
    other.write_text("of-the-environment")
    monkeypatch.setenv(variable, str(other) if variable.endswith("FILE") else "of-the-environment")
    for option in (["--token-file", str(said)], ["--token", "said"]):
        for arguments in ([*option, "token"], ["token", *option]):
            assert run(arguments) == 0
            assert capsys.readouterr().out == "said\n"


def test_without_a_server_the_command_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="packhorse up --data") as failed:
        Connection(tmp_path).publisher_url()
    assert failed.value.code is Exit.USAGE


def test_what_has_no_name_is_not_offered_to_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ScriptedClient(lambda _: {"queues": [{"name": name} for name in ("", "a", "b")]})
    monkeypatch.setattr(
        completion, "connection_of", lambda _: SimpleNamespace(jobs=lambda **_: found)
    )
    offered = [completion.job_queues(None, typed) for typed in ("", "a")]  # type: ignore[arg-type]
    assert offered == [["a", "b"], ["a"]]


@pytest.mark.parametrize(
    ("content", "token"),
    [
        ("plain-token\n", "plain-token"),
        ('{"tokens": [{"sha256": "00"}, {"token": "second"}]}', "second"),
    ],
)
def test_a_token_file_is_plain_or_packhorse_s_own(tmp_path: Path, content: str, token: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    assert read_token(path) == token


@pytest.mark.parametrize("content", ["{", '{"tokens": 1}', '{"tokens": [{"sha256": "00"}]}'])
def test_a_file_without_a_token_is_a_usage_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    with pytest.raises(Misused) as failed:
        read_token(path)
    assert exit_code(failed.value) is Exit.USAGE


def test_the_journal_may_come_from_the_file_that_programs_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "journal-url"
    monkeypatch.setenv("PACKHORSE_DATA", str(tmp_path / "no stack"))
    monkeypatch.setenv("PACKHORSE_JOURNAL_URL_FILE", str(secret))
    assert run(["topics", "check"]) == Exit.USAGE
    assert "PACKHORSE_JOURNAL_URL_FILE: " in capsys.readouterr().err
    secret.write_text("memory://one\n")
    assert run(["topics", "check"]) == Exit.USAGE
    assert "memory:// lives in one process" in capsys.readouterr().err
    monkeypatch.delenv("PACKHORSE_JOURNAL_URL_FILE")
    assert run(["topics", "check"]) == Exit.USAGE
    assert "name it with --journal" in capsys.readouterr().err
