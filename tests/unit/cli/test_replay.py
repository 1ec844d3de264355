"""A file of requests against a server that refuses, loses and forgets."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from packhorse.client.blocking import Client
from packhorse.client.errors import Denied, Fenced, NoAnswer
from packhorse_services.cli.client.connection import client_of
from packhorse_services.cli.client.failures import CommandFailed, Exit, exit_code
from packhorse_services.cli.distribute.replay import ReplayRequest, replay
from packhorse_services.cli.distribute.replay_news import News, Tally
from tests.harness.answering import answering

Answer = tuple[int, dict[str, str], dict[str, Any]]
CUT: Answer = (0, {}, {})


def problem(status: int, kind: str, **headers: str) -> Answer:
    return status, headers, {"type": f"/problems/{kind}", "title": kind}


class FakePublisher:
    """Takes sequences as a publisher does; `mishaps` are what happens to a line before that."""

    def __init__(self) -> None:
        self.epoch, self.last = 0, -1
        self.bodies: list[dict[str, Any]] = []
        self.calls: list[list[int]] = []
        self.mishaps: dict[int, list[Answer]] = {}
        self.lost: set[int] = set()
        """Sequences whose first answer is lost, after they were taken."""

    def register(self) -> Answer:
        self.epoch += 1
        last = None if self.last < 0 else self.last
        return 200, {}, {"epoch": self.epoch, "last_sequence": last}

    def batch(self, requests: list[dict[str, Any]]) -> Answer:
        """Answer as a publisher does: behind a refused line of the producer nothing is taken."""
        self.calls.append([one["producer"]["sequence"] for one in requests])
        outcomes: list[dict[str, Any]] = []
        refused = lost = False
        for one in requests:
            number = one["producer"]["sequence"]
            answer = problem(503, "earlier-refused") if refused else self.distribute(one)
            if answer is CUT:
                lost = True
                if number not in self.lost:
                    return CUT
                answer = 202, {}, {"repeated": False}
            status, headers, body = answer
            if status == 401:  # the caller is refused, whatever is asked
                return answer
            refused = refused or (status != 202 and body["type"] != "/problems/sequence-passed")
            wait_s = headers.get("Retry_After")
            outcomes.append(
                {
                    "status": status,
                    "accepted": body if status == 202 else None,
                    "problem": None if status == 202 else body,
                    "retry_after": None if wait_s is None else int(wait_s),
                }
            )
        return CUT if lost else (200, {}, {"outcomes": outcomes})

    def pass_over(self, body: dict[str, Any]) -> Answer:
        self.last = max(self.last, body["last_sequence"])
        return 200, {}, {}

    def distribute(self, body: dict[str, Any]) -> Answer:
        number = body.pop("producer")
        sequence = number["sequence"]
        if self.mishaps.get(sequence):
            return self.mishaps[sequence].pop(0)
        if number["epoch"] < self.epoch:
            return problem(409, "producer-fenced")
        if sequence <= self.last:
            return 202, {}, {"repeated": True}
        self.last = sequence
        self.bodies.append(body)
        if sequence in self.lost:
            return CUT
        return 202, {}, {"repeated": False}


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher()


@pytest.fixture
def api(publisher: FakePublisher) -> Iterator[Client]:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer(publisher.register())

        def do_POST(self) -> None:
            self._answer(publisher.batch(self._body()["requests"]))

        def do_PATCH(self) -> None:
            self._answer(publisher.pass_over(self._body()))

        def _body(self) -> Any:
            return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, answer: Answer) -> None:
            status, headers, body = answer
            if answer is CUT:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    with answering(Handler) as url, client_of("publisher", url, None) as client:
        yield client


@pytest.fixture
def requested(tmp_path: Path) -> Callable[..., ReplayRequest]:
    def ask(*texts: str, **options: Any) -> ReplayRequest:
        path = tmp_path / "paths.txt"
        path.write_text("".join(f"{text}\n" for text in texts))
        return ReplayRequest(str(path), "import", "ADD", deep=False, **options)

    return ask


def test_each_line_is_a_request_with_its_number(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest], capfd: Any
) -> None:
    line = '{"action": "delete", "deep_paths": ["/b"]}'
    replay(api, requested("# what to send", "", "/a", line, "  ", "/c d"))
    assert publisher.bodies == [
        {"action": "ADD", "paths": ["/a"]},
        {"action": "DELETE", "deep_paths": ["/b"]},
        {"action": "ADD", "paths": ["/c d"]},
    ]
    assert publisher.last == 6
    assert "3 published in" in capfd.readouterr().err


def test_a_second_replay_sends_what_was_added(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest], capfd: Any
) -> None:
    replay(api, requested("/a", "/b"))
    replay(api, requested("/a", "/b", "/c"))
    assert [body["paths"] for body in publisher.bodies] == [["/a"], ["/b"], ["/c"]]
    assert (
        "1 published, 2 lines up to line 2 dealt with by an earlier replay (pub"
        in capfd.readouterr().err
    )


def test_what_may_not_have_arrived_is_sent_again(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest], capfd: Any
) -> None:
    publisher.lost = {2}
    publisher.mishaps = {
        1: [problem(503, "duplicate-unknown", Retry_After="0"), CUT],
        2: [problem(429, "too-far-behind", Retry_After="0"), problem(502, "x", Retry_After="0")],
        3: [problem(409, "key-in-progress", Retry_After="0")],
        4: [problem(410, "sequence-passed")],
    }
    replay(api, requested("/a", "/b", "/c", "/d", "/e"))
    assert [body["paths"] for body in publisher.bodies] == [["/a"], ["/b"], ["/c"], ["/e"]]
    assert "3 published, 2 had been published already" in capfd.readouterr().err


@pytest.mark.parametrize("status", [403, 404, 422])
def test_a_refused_line_stops_and_is_named(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest], status: int
) -> None:
    publisher.mishaps = {2: [problem(status, "no")]}
    with pytest.raises(CommandFailed, match=r"paths\.txt:2: no") as failed:
        replay(api, requested("/a", "/b", "/c"))
    assert failed.value.code is (Exit.NOT_FOUND if status == 404 else Exit.FAILED)
    assert len(publisher.bodies) == 1
    replay(api, requested("/a", "/b", "/c"))
    assert [body["paths"] for body in publisher.bodies] == [["/a"], ["/b"], ["/c"]]


def test_it_keeps_going_when_asked_to_and_fails_at_the_end(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest], capfd: Any
) -> None:
    publisher.mishaps = {2: [problem(404, "no")]}
    with pytest.raises(CommandFailed, match="2 lines were refused") as failed:
        replay(api, requested("/a", "/b", "{broken", "/d", keep_going=True))
    assert failed.value.code == Exit.FAILED
    said = capfd.readouterr().err
    assert "paths.txt:2: no" in said
    assert "paths.txt:3: it is no JSON" in said
    assert "2 published, 2 refused" in said
    assert [body["paths"] for body in publisher.bodies] == [["/a"], ["/d"]]
    replay(api, requested("/a", "/b", "{broken", "/d", keep_going=True))
    said = capfd.readouterr().err
    assert "0 published, 4 lines up to line 4 dealt with by an earlier replay" in said
    assert "(published or refused)" in said


@pytest.mark.parametrize("last", ["/no", "{broken"])
def test_a_line_that_is_refused_at_the_end_is_passed_over_for_good(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest], last: str
) -> None:
    publisher.mishaps = {2: [problem(404, "no")], 3: [problem(404, "no")]}
    with pytest.raises(CommandFailed, match="2 lines were refused"):
        replay(api, requested("/a", "/no", last, keep_going=True))
    assert publisher.last == 3
    replay(api, requested("/a", "/no", last))
    assert [body["paths"] for body in publisher.bodies] == [["/a"]]


def test_lines_go_out_together_as_many_as_wanted(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest]
) -> None:
    publisher.mishaps = {4: [problem(422, "no")]}
    with pytest.raises(CommandFailed, match="1 line was"):
        replay(api, requested(*(f"/{n}" for n in range(1, 9)), keep_going=True, batch=3))
    assert publisher.calls == [[1, 2, 3], [4, 5, 6], [5, 6], [7, 8]]
    assert len(publisher.bodies) == 7


def test_a_line_that_waits_says_why_once(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest], capfd: Any
) -> None:
    full, away = (problem(*one, Retry_After="0") for one in ((429, "queue-full"), (503, "away")))
    publisher.mishaps = {1: [full, full, full, away], 2: [away, CUT, CUT]}
    replay(api, requested("/a", "/b"))
    said = capfd.readouterr().err
    assert "import waits, and tries again in 0 s: queue-full (429)" in said
    assert [said.count(why) for why in ("queue-full", "away (503)", "nobody answers")] == [1, 1, 1]


def test_without_a_terminal_it_prints_how_far_it_is(capfd: Any) -> None:
    seconds = [0.0]
    news, tally = News("nightly", 2_000, clock=lambda: seconds[0]), Tally()
    for number in range(1, 601):
        tally.published = number
        news.line(tally)
    assert capfd.readouterr().err == "nightly: 500 of 2000 lines, 500 published\n"
    seconds[0] = 10.0
    tally.refused = 2
    news.line(tally)
    assert capfd.readouterr().err == "nightly: 601 of 2000 lines, 600 published, 2 refused\n"


def test_a_reason_that_lasts_is_reported_once_a_minute(capfd: Any) -> None:
    seconds = [0.0]
    news = News("nightly", None, clock=lambda: seconds[0])
    for seconds[0] in range(130):
        news.waits(NoAnswer("nobody answers"))
    assert capfd.readouterr().err.count("nobody answers") == 3


def test_a_replay_that_is_fenced_ends_with_a_conflict(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest]
) -> None:
    publisher.mishaps = {2: [problem(409, "producer-fenced")]}
    with pytest.raises(Fenced) as failed:
        replay(api, requested("/a", "/b", keep_going=True))
    assert exit_code(failed.value) == Exit.CONFLICT


def test_a_token_that_allows_nothing_is_no_fault_of_a_line(
    publisher: FakePublisher, api: Client, requested: Callable[..., ReplayRequest]
) -> None:
    publisher.mishaps = {1: [problem(401, "unauthenticated")]}
    with pytest.raises(Denied) as failed:
        replay(api, requested("/a", keep_going=True))
    assert "paths.txt" not in str(failed.value)


def test_a_file_that_is_not_there_is_a_usage_error(api: Client, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="can't be read") as failed:
        replay(api, ReplayRequest(str(tmp_path / "none"), "import", "ADD", deep=False))
    assert failed.value.code == Exit.USAGE
