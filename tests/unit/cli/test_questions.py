"""What commands ask before they do it: without a yes, nothing is done, and the command says so."""

import io
import sys
from typing import Any

import pytest

from packhorse.client.exchange import Request
from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection
from tests.harness.scripted_client import ScriptedClient

COMMANDS = {
    "clear queue sub1": "nothing was cleared",
    "forget subscriber sub1": "nobody was forgotten",
    "reset offset sub1 --to 4": "nothing was changed",
    "errors dismiss sub1 7": "nothing was dismissed",
    "topics discard --up-to 4": "nothing was discarded",
}


def answered(request: Request) -> dict[str, Any]:
    queue = {"agent": "main", "editable": True, "length": 1, "at_least": 1, "head": None}
    command = {"command_id": "c1", "subscriber": "sub1", "agent": "main", "kind": "RESET"}
    cleared = {"packages": 1, "packages_at_most": 1}
    discarded = {"offsets": 5, "oldest_offset": 5, "next_offset": 9, "left_behind": []}
    dismissed = {"offsets": [7], "length": 0, "more": False}
    last = discarded if "discard" in request.path else dismissed
    return {**queue, **command, **cleared, **last}


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What is asked for beside what changes nothing."""
    made: list[Request] = []

    def answer(request: Request) -> dict[str, Any]:
        if request.method != "GET" and not (request.body or {}).get("dry_run"):
            made.append(request)
        return answered(request)

    def client(_: Connection) -> ScriptedClient:
        return ScriptedClient(answer)

    monkeypatch.setattr(Connection, "publisher", client)
    monkeypatch.setattr(Connection, "cleanup", client)
    return made


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("stdin", [io.StringIO(""), None], ids=["at its end", "closed"])
def test_where_nobody_answers_nothing_is_done(
    changes: list[Request],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stdin: io.StringIO | None,
    command: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run(command.split()) == 1
    assert not changes
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"\nerror: {COMMANDS[command]}, for nobody answers; --yes asks nothing" in printed.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("answer", "is_done"), [("y", True), ("YES", True), ("", False), ("n", False)]
)
def test_a_yes_is_needed(
    changes: list[Request],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    is_done: bool,
    command: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))
    assert run(command.split()) == (0 if is_done else 1)
    assert len(changes) == is_done
    assert (f"error: {COMMANDS[command]}\n" in capsys.readouterr().err) is not is_done
