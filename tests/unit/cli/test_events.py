"""`packhorse events`: reconnecting where it was, what it gives up on, what it shows."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pytest
from httpx_sse import ServerSentEvent

from packhorse_services.cli import events
from packhorse_services.cli.client.api import CommandFailed, Exit, NoAnswer, Refused
from packhorse_services.cli.client.views import Format

LOST = NoAnswer("the connection was lost")


def refused(status: int, retry_after_s: float | None = None) -> Refused:
    return Refused("refused", Exit.FAILED, status=status, kind="x", retry_after_s=retry_after_s)


def block(number: int, retry: int | None = None) -> ServerSentEvent:
    data = json.dumps({"offset": number}) if number else ""
    return ServerSentEvent("package", data, f"p{number}-s0-e0", retry)


class Publisher:
    """Plays one script a connection: blocks, and at the end perhaps an error."""

    def __init__(self, *connections: list[ServerSentEvent | CommandFailed]) -> None:
        self._connections = list(connections)
        self.asked: list[str] = []
        self.pauses: list[float] = []

    @contextmanager
    def follow(self, path: str, last_id: str) -> Iterator[Iterator[ServerSentEvent]]:
        self.asked.append(last_id)
        script = self._connections.pop(0)
        if script and isinstance(script[0], CommandFailed):
            raise script[0]
        yield self._play(script)

    def _play(self, script: list[ServerSentEvent | CommandFailed]) -> Iterator[ServerSentEvent]:
        for step in script:
            if isinstance(step, CommandFailed):
                raise step
            yield step

    def told(self, count: int) -> list[int]:
        following = events.follow(self, "/events", pause=self.pauses.append)  # type: ignore[arg-type]
        return [one.json()["offset"] for one in islice(following, count)]


def test_it_goes_on_behind_the_last_event_wherever_the_connection_was_lost() -> None:
    publisher = Publisher(
        [block(0, retry=2000), block(1), block(2), LOST],
        [LOST],
        [refused(429, 10)],
        [refused(502)],
        [block(0)],
        [block(3)],
    )
    assert publisher.told(3) == [1, 2, 3]
    behind_two = "p2-s0-e0"
    assert publisher.asked == ["", *[behind_two] * 4, "p0-s0-e0"]
    assert publisher.pauses == [2, 4, 10, 20, 30]


def test_pauses_are_short_again_after_a_connection() -> None:
    publisher = Publisher(
        [block(1, retry=500), LOST], *[[LOST]] * 8, [block(2, retry=500), LOST], [block(3)]
    )
    assert publisher.told(3) == [1, 2, 3]
    assert publisher.pauses[:9] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert publisher.pauses[9] == 0.5


@pytest.mark.parametrize("error", [LOST, refused(401), refused(429, 10), refused(422)])
def test_the_first_connection_has_to_work(error: CommandFailed) -> None:
    with pytest.raises(type(error)):
        Publisher([error]).told(1)


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_a_refusal_for_good_ends_it(status: int) -> None:
    with pytest.raises(Refused):
        Publisher([block(1), LOST], [refused(status)]).told(2)


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
        ("package", PACKAGE, "7  ADD  /a (+1)  by editor\ufffd[2J  id-1"),
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
    event = ServerSentEvent(name, json.dumps(data), "p1-s0-e0", None)
    assert events._SHOWN[Format.TABLE](event).endswith(shown)
    assert json.loads(events._SHOWN[Format.JSON](event)) == {
        "event": name,
        "id": "p1-s0-e0",
        "data": data,
    }
    assert events._SHOWN[Format.NAME](event)
    assert events._SHOWN[Format.WIDE](event).endswith("p1-s0-e0")
