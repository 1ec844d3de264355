"""`packhorse distribute`: what is printed when nobody answers, and whom it waits for."""

from types import SimpleNamespace
from typing import Any

import pytest

from packhorse.client.errors import (
    ClientError,
    NoAnswer,
    NoAnswerInTime,
    NotFound,
    Unavailable,
)
from packhorse.client.exchange import Request
from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.distribute import command
from tests.harness.scripted_client import ScriptedClient


class Publisher(ScriptedClient):
    """Gives prepared answers, and none to what is sent."""

    def __init__(self, *documents: dict[str, Any] | ClientError) -> None:
        self._documents = list(documents)
        super().__init__(self._answered)

    def _answered(self, request: Request) -> Any:
        if request.method == "POST":
            return NoAnswerInTime("nobody answers")
        assert request.path.startswith("/distributions/id?wait=")
        return self._documents.pop(0)


def document(state: str, **subscribers: str) -> dict[str, Any]:
    return {
        "state": state,
        "subscribers": [
            {
                "subscriber": name,
                "state": text.removesuffix("?"),
                "stale": text.endswith("?"),
                "reason": "",
            }
            for name, text in subscribers.items()
        ],
    }


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Publisher:
    """The one that commands ask."""
    publisher = Publisher()
    monkeypatch.setattr(Connection, "publisher", lambda _: publisher)
    return publisher


@pytest.mark.parametrize("given", [[], ["--key", "mine"]])
def test_a_request_without_an_answer_names_the_key_to_repeat_it_with(
    publisher: Publisher, capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    assert run(["distribute", "/a", *given]) == Exit.TIMEOUT
    [key] = [one.headers["Idempotency-Key"] for one in publisher.requests]
    assert f"--key {key}" in capsys.readouterr().err
    assert key == "mine" or not given


def test_it_waits_for_all_that_live_and_names_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    publisher = Publisher(
        document("QUEUED", a="IMPORTED", b="RETRYING"),
        document("PARTLY_DISTRIBUTED", a="IMPORTED", b="SKIPPED", c="QUEUED?"),
    )
    command.await_distributed(publisher, "id", 60)
    reported = capsys.readouterr().err
    assert "c is silent" in reported
    assert "b did not import it" in reported
    assert "PARTLY_DISTRIBUTED" in reported, "R31: it is not everywhere"


def test_one_timeout_is_for_all_that_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = [100.0], []

    def wait_for(_identifier: str, timeout: float) -> dict[str, Any]:
        left.append(timeout)
        now[0] += 4
        return {**document("DISTRIBUTED"), "failed": {}}

    publisher = Publisher()
    monkeypatch.setattr(publisher, "wait_for", wait_for)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: now[0]))
    command.await_all_distributed(publisher, ["a", "b", "c", "d"], 10)
    assert left == [10, 6, 2, 0]


def test_r35_only_those_that_it_is_for_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    of_others = {"targets": ["a"]}
    done = document("DISTRIBUTED", a="IMPORTED", b="SKIPPED", c="QUEUED?", d="REMOVED_FAILED")
    command.await_distributed(Publisher({**done, **of_others}), "id", 60)
    assert capsys.readouterr().err == ""
    slow = {**document("QUEUED", a="QUEUED", c="QUEUED?"), **of_others}
    with pytest.raises(CommandFailed) as failed:
        command.await_distributed(Publisher(slow, slow), "id", 0)
    assert str(failed.value).endswith(": a QUEUED")


AWAY = NoAnswer("nobody answers")
STARTING = Unavailable("not yet", 503)
GONE = NotFound("no such distribution", 404)


def test_a_publisher_that_is_away_meanwhile_ends_no_wait() -> None:
    command.await_distributed(Publisher(AWAY, STARTING, document("DISTRIBUTED")), "id", 60)
    with pytest.raises(NoAnswer):
        command.await_distributed(Publisher(AWAY, AWAY), "id", 0)
    with pytest.raises(NotFound, match="no such distribution"):
        command.await_distributed(Publisher(GONE), "id", 60)


def test_a_failure_ends_the_wait_at_once_and_time_does_too() -> None:
    failing = Publisher(document("QUEUED", a="REMOVED_FAILED", b="QUEUED"))
    with pytest.raises(CommandFailed, match="a: REMOVED_FAILED"):
        command.await_distributed(failing, "id", 60)
    done = Publisher(document("PARTLY_DISTRIBUTED", a="REMOVED", b="IMPORTED"))
    with pytest.raises(CommandFailed, match="a: REMOVED"):
        command.await_distributed(done, "id", 60)
    done = Publisher(document("PARTLY_DISTRIBUTED", a="DUPLICATE", b="IMPORTED"))
    with pytest.raises(CommandFailed, match="a: DUPLICATE"):
        command.await_distributed(done, "id", 60)
    slow = Publisher(document("QUEUED", a="QUEUED"), document("QUEUED", a="QUEUED"))
    with pytest.raises(CommandFailed, match="not everywhere after 0 s: a QUEUED") as failed:
        command.await_distributed(slow, "id", 0)
    assert failed.value.code is Exit.TIMEOUT


def test_who_is_not_waited_for_is_marked_and_a_reason_is_reported() -> None:
    one = document("QUEUED", a="QUEUED?", b="QUEUED")
    one["subscribers"][1]["reason"] = "PAUSED"
    with pytest.raises(CommandFailed) as failed:
        command.await_distributed(Publisher(one, one), "id", 0)
    assert str(failed.value).endswith("b QUEUED PAUSED; a QUEUED (STALE, not waited for)")


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_is_refused(
    publisher: Publisher, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert run(["distribute", "/a", "--key", key]) == Exit.USAGE
    assert "key is empty" in capsys.readouterr().err
    assert publisher.requests == []


@pytest.mark.parametrize(
    "options",
    [
        ("/a",),
        ("--at", "2999-01-01T00:00:00Z"),
        ("--dry-run",),
        ("--key", "k"),
        ("--to", "sub1"),
        ("--wait",),
    ],
)
def test_what_a_file_of_requests_goes_without_is_named(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["distribute", "--from-file", "f", "--producer", "p", *options]) == 2
    named = "paths" if options[0] == "/a" else options[0]
    assert named in capsys.readouterr().err.partition("without")[2]
