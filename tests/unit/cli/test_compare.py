"""`packhorse compare`: what is said when the mending has no answer."""

from typing import Any

import pytest

from packhorse.client.errors import NoAnswer
from packhorse.client.exchange import Request
from packhorse_services.cli.app import run
from packhorse_services.cli.distribute import comparing
from tests.harness.scripted_client import ScriptedClient

EVERYTHING: dict[str, Any] = {
    "include": [],
    "exclude": [],
    "map_paths": {},
    "exclude_properties": [],
}
QUEUE = {"entries": [], "length": 0, "offset": 1, "state": "IDLE", "next": None}


def answered(request: Request) -> Any:
    if request.method == "POST":
        return NoAnswer("nobody answers")
    if request.path.startswith("/digests"):
        nodes = [{"path": "/a", "digest": "1"}] if request.service == "content" else []
        return {"nodes": nodes, "next": None}
    return EVERYTHING if request.path.startswith("/subscribers") else QUEUE


def test_a_mending_without_an_answer_is_repeated_without_a_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparing, "_client", lambda *_: ScriptedClient(answered))
    assert run(["compare", "/", "--subscriber", "sub1", "--mend"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "missing   /a\n"
    assert (
        printed.err == "error: nobody answers\nRepeat the command: it mends what differs still.\n"
    )
