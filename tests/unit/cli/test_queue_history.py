"""`packhorse get queue-history`: a row for each point, in the order of time."""

import json

import pytest

from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection
from tests.harness.console import history
from tests.harness.scripted_client import ScriptedClient


def test_each_point_is_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = ScriptedClient(lambda _: history("sub 1", [None, 60.5]))
    monkeypatch.setattr(Connection, "publisher", lambda _: publisher)
    assert run(["get", "queue-history", "sub 1", "--hours", "6", "-o", "json"]) == 0
    assert publisher.requests[0].path == "/queues/sub%201/history?hours=6&points=12"
    shown = json.loads(capsys.readouterr().out)["history"]
    assert [(one["time"][11:], one["lag_seconds"]) for one in shown] == [
        ("12:00:00Z", None),
        ("12:01:00Z", 60.5),
    ]
    assert run(["get", "queue-history", "sub 1"]) == 0
    assert "60 s" in capsys.readouterr().out
    assert run(["get", "queue-history", "sub 1", "--hours", "25"]) == 2
