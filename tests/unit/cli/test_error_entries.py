"""`packhorse errors`: what goes out is printed, and what does not is reported with its reason."""

from typing import Any

import pytest

from packhorse.client.errors import NoAnswer
from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection
from tests.harness.scripted_client import ScriptedClient


class Publisher(ScriptedClient):
    """Answers posts with what it is given, and keeps them."""

    def __init__(self, **answer: Any) -> None:
        super().__init__(lambda _: answer)

    @property
    def posted(self) -> list[tuple[str, Any]]:
        return [(one.path, one.body) for one in self.requests if one.method == "POST"]

    @property
    def deleted(self) -> list[str]:
        return [one.path for one in self.requests if one.method == "DELETE"]


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(publisher: Publisher) -> Publisher:
        monkeypatch.setattr(Connection, "publisher", lambda _: publisher)
        monkeypatch.setattr(Connection, "jobs", lambda _: publisher)
        return publisher

    return use


def entry(offset: int, state: str, made: str | None = None, reason: str = "") -> dict[str, Any]:
    return {"offset": offset, "state": state, "distribution_id": made, "reason": reason}


def test_several_entries_are_one_request(asks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = [
        entry(1, "REDISTRIBUTED", "new"),
        entry(2, "ALREADY_REDISTRIBUTED", "old"),
        entry(3, "REFUSED", reason="'/p' does not exist"),
    ]
    publisher = asks(Publisher(entries=done, more=True))
    assert run(["errors", "redistribute", "sub 1", "1", "2", "3"]) == 1
    body = {"offsets": [1, 2, 3], "again": False}
    assert publisher.posted == [("/queues/sub%201/errors/redistribute", body)]
    printed = capsys.readouterr()
    assert printed.out == "new\n"
    for said in ("2: was distributed again before, as old", "3: '/p' does", "1 of 3", "more"):
        assert said in printed.err


def test_one_entry_is_asked_for_by_itself_and_again(
    asks: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = asks(Publisher(id="new"))
    assert run(["errors", "redistribute", "sub1", "7"]) == 0
    assert run(["errors", "redistribute", "sub1", "7", "--again"]) == 0
    path = "/queues/sub1/errors/7/redistribute"
    assert publisher.posted == [(path, {}), (f"{path}?again=true", {})]
    assert capsys.readouterr().out == "new\nnew\n"


@pytest.mark.parametrize(
    "words",
    [
        ["errors", "redistribute", "sub1", "7"],
        ["release", "create", "spring", "/a"],
        ["job", "add", "images/thumbnail"],
    ],
)
def test_the_key_is_reported_when_nobody_answers(
    asks: Any, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    asks(ScriptedClient(lambda _: NoAnswer("nobody answers")))
    assert run([*words, "--key", "mine"]) == 1
    reported = capsys.readouterr().err
    assert "Repeat the command with --key mine: then it is" in reported
    assert "key='mine'" not in reported


def test_entries_are_dismissed_and_subscribers_forgotten_once_that_is_confirmed(
    asks: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = asks(Publisher(offsets=[4, 9], length=2, more=False))
    assert run(["errors", "dismiss", "sub1", "--reason", "blob", "--yes"]) == 0
    assert publisher.posted == [("/queues/sub1/errors/dismiss", {"reason": "blob"})]
    printed = capsys.readouterr()
    assert printed.out == "4\n9\n"
    assert "2 dismissed, 2 left" in printed.err
    assert run(["forget", "subscriber", "sub1", "--yes"]) == 0
    assert publisher.deleted == ["/subscribers/sub1"]


@pytest.mark.parametrize("words", [["redistribute"], ["dismiss", "--yes"]])
def test_nothing_named_is_never_everything(
    asks: Any, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    publisher = asks(Publisher())
    assert run(["errors", *words, "sub1"]) == 2
    assert publisher.posted == []
    assert "name offsets" in capsys.readouterr().err
