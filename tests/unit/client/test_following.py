"""Following a stream: reconnecting where it was, what it gives up on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pytest

from packhorse.client import blocking
from packhorse.client.calls.streams import events
from packhorse.client.errors import ClientError, Misused, NoAnswer, Refused
from packhorse.client.exchange import Request
from packhorse.client.following import Block, Following, Gap
from tests.harness.scripted_client import ScriptedClient

LOST = NoAnswer("the connection was lost")


def refused(status: int, retry_after_s: float | None = None) -> Refused:
    return Refused("refused", status, retry_after_s=retry_after_s)


def block(number: int, retry: int | None = None) -> Block:
    data = json.dumps({"offset": number}) if number else ""
    return Block("package", data, f"p{number}-s0-e0", retry)


class Publisher(ScriptedClient):
    """Plays one script a connection: blocks, and at the end perhaps an error."""

    def __init__(self, *connections: list[Block | ClientError]) -> None:
        super().__init__(lambda _: None)
        self._connections = list(connections)
        self.requested: list[str] = []

    @contextmanager
    def _opened(self, request: Request) -> Iterator[Iterator[Block]]:
        self.requested.append(request.headers.get("Last-Event-ID", ""))
        script = self._connections.pop(0)
        if script and isinstance(script[0], ClientError):
            raise script[0]
        yield self._play(script)

    def _play(self, script: list[Block | ClientError]) -> Iterator[Block]:
        for step in script:
            if isinstance(step, ClientError):
                raise step
            yield step


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(blocking.time, "sleep", found.append)  # type: ignore[attr-defined]
    return found


def reported(publisher: Publisher, count: int) -> list[int]:
    return [one.data.offset for one in islice(publisher.events(), count)]


def test_it_goes_on_behind_the_last_event_wherever_the_connection_was_lost(
    pauses: list[float],
) -> None:
    publisher = Publisher(
        [block(0, retry=2000), block(1), block(2), LOST],
        [LOST],
        [refused(429, 10)],
        [refused(502)],
        [block(0)],
        [block(3)],
    )
    assert reported(publisher, 3) == [1, 2, 3]
    behind_two = "p2-s0-e0"
    assert publisher.requested == ["", *[behind_two] * 4, "p0-s0-e0"]
    assert pauses == [2, 4, 10, 20, 30]


def test_pauses_are_short_again_after_a_connection(pauses: list[float]) -> None:
    publisher = Publisher(
        [block(1, retry=500), LOST], *[[LOST]] * 8, [block(2, retry=500), LOST], [block(3)]
    )
    assert reported(publisher, 3) == [1, 2, 3]
    assert pauses[:9] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert pauses[9] == 0.5


@pytest.mark.parametrize("error", [LOST, refused(401), refused(429, 10), refused(422)])
def test_the_first_connection_has_to_work_for_who_has_no_patience(error: ClientError) -> None:
    with pytest.raises(type(error)):
        reported(Publisher([error]), 1)


def test_the_first_connection_is_tried_as_long_as_the_client_is_patient() -> None:
    following, now = events(), 100.0
    for pause in (1, 2, 4, 8, 16):
        assert following.ended(LOST, now, 60.0) == pause
        now += pause
    with pytest.raises(NoAnswer):
        following.ended(LOST, now, 60.0)
    with pytest.raises(Refused):
        events().ended(refused(404), 0.0, 60.0)
    following.took(block(1))
    assert following.ended(LOST, 1e9, 60.0)


def test_a_stream_that_is_lost_is_told_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    following = events()
    for _ in range(3):
        following.ended(LOST, 0.0, 60.0)
    [told] = [one.getMessage() for one in caplog.records]
    assert told == "/events can't be followed now: the connection was lost"


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_a_refusal_for_good_ends_it(status: int, pauses: list[float]) -> None:
    with pytest.raises(Refused):
        reported(Publisher([block(1), LOST], [refused(status)]), 2)


def test_a_gap_is_an_object_of_its_own_and_what_is_no_json_a_text() -> None:
    following = events("status", subscriber="sub 1", after="p1-s0-e0")
    assert following.request().path == "/events?types=status&subscriber=sub+1"
    gap = following.took(Block("gap", '{"from_offset": 1}', "p9-s0-e0", None))
    assert isinstance(gap, Gap)
    assert gap.data.from_offset == 1
    text = following.took(Block("later", "no json", "", None))
    assert text is not None
    assert text.data == "no json"
    assert following.request().headers["Last-Event-ID"] == "p9-s0-e0"


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(Misused, match="empty"):
        Following("/events", after=" ")
