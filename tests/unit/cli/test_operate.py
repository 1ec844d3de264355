"""Commands to subscribers: what is said before the wait for what becomes of them."""

from typing import Any

import pytest

from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection
from tests.harness.scripted_client import ScriptedClient, in_turn

COMMAND = {"command_id": "c1", "subscriber": "sub1", "agent": "main"}


@pytest.mark.parametrize(
    ("words", "kind"), [(["stop", "subscriber"], "STOP"), (["retry", "subscriber"], "RETRY")]
)
def test_it_is_asked_before_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    kind: str,
) -> None:
    command: dict[str, Any] = {**COMMAND, "kind": kind}
    rejected = {**command, "state": "REJECTED", "reason": "it is gone"}
    publisher = ScriptedClient(in_turn(command, rejected))
    monkeypatch.setattr(Connection, "publisher", lambda _: publisher)
    assert run([*words, "sub1", "--wait"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "c1\n"
    asked, failed = printed.err.splitlines()
    assert f"sub1 is asked to {kind.lower()} its subscription of agent main" in asked
    assert "rejected it: it is gone" in failed
