"""Releases of the command line: what is refused before anything is sent, and how they look."""

from typing import Any

import pytest

from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection
from tests.harness.scripted_client import ScriptedClient

RELEASE: dict[str, Any] = {
    "id": "r-1",
    "name": "",
    "state": "SCHEDULED",
    "at": "2999-12-24T18:00:00Z",
    "paths": ["/a"],
    "deep_paths": [],
}


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> ScriptedClient:
    client = ScriptedClient(
        lambda one: RELEASE if one.method == "PATCH" else {"releases": [RELEASE], "next": None}
    )

    monkeypatch.setattr(Connection, "publisher", lambda _: client)
    return client


@pytest.mark.parametrize("options", ["", "--never --at 2999-12-24T18:00:00Z"])
def test_a_schedule_needs_a_moment_or_never(
    publisher: ScriptedClient, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    assert run(["release", "schedule", "r-1", *options.split()]) == 2
    assert not publisher.requests
    assert "name a moment with --at, or --never" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "at"),
    [("--never", None), ("--at 2999-12-24T18:00:00Z", "2999-12-24T18:00:00Z")],
)
def test_never_leaves_it_without_a_moment(
    publisher: ScriptedClient, options: str, at: str | None
) -> None:
    assert run(["release", "schedule", "r-1", *options.split()]) == 0
    assert publisher.sent() == [("/releases/r-1", {"at": at})]


@pytest.mark.usefixtures("publisher")
def test_what_has_no_name_is_shown_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["get", "releases"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["r-1", "SCHEDULED"]
