"""`packhorse events`: what it shows."""

import json
from collections.abc import Iterator

import pytest

from packhorse.client.blocking import Client
from packhorse.client.following import Following, StreamEvent
from packhorse_services.cli import events
from packhorse_services.cli.app import run
from packhorse_services.cli.client.views import Format

PACKAGE = {
    "package_id": "id-1",
    "offset": 7,
    "action": "ADD",
    "paths": ["/a", "/b"],
    "deep_paths": [],
    "user": "editor\u001b[2J",
    "size": 1,
    "time": "2026-11-21T22:00:00Z",
}


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("package", PACKAGE, "7  ADD  /a (+1)  by editor\\x1b[2J  id-1"),
        (
            "gap",
            {"source": "status", "from_offset": 1, "to_offset": 5, "reason": "FORGOTTEN"},
            "status events from offset 1 on are lost (FORGOTTEN); it goes on at 5",
        ),
        ("later", {"a": 1}, 'later  {"a": 1}'),
        ("package", {"offset": 1}, 'package  {"offset": 1}'),
        ("package", [], "package  []"),
    ],
)
def test_what_is_shown(name: str, data: object, shown: str) -> None:
    event = StreamEvent(name, "p1-s0-e0", data)
    assert events._SHOWN[Format.TABLE](event).endswith(shown)
    assert json.loads(events._SHOWN[Format.JSON](event)) == {
        "event": name,
        "id": "p1-s0-e0",
        "data": data,
    }
    assert events._SHOWN[Format.NAME](event)
    assert events._SHOWN[Format.WIDE](event).endswith("p1-s0-e0")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("", "/events"),
        ("--types subscriber,status", "/events?types=subscriber%2Cstatus"),
        ("--types subscriber --types package", "/events?types=subscriber%2Cpackage"),
    ],
)
def test_every_type_that_is_named_is_followed(
    monkeypatch: pytest.MonkeyPatch, given: str, sent: str
) -> None:
    followed: list[str] = []

    def follow(_: Client, following: Following) -> Iterator[StreamEvent]:
        followed.append(following.request().path)
        return iter(())

    monkeypatch.setattr(events, "follow", follow)
    assert run(["--server", "http://127.0.0.1:1", "events", *given.split()]) == 0
    assert followed == [sent]
