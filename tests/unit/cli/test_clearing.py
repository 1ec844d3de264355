"""`packhorse clear queue`: the question names what the bound covers, and nothing else."""

from typing import Any

import pytest

from packhorse.client.exchange import Request
from packhorse_services.cli import clearing
from packhorse_services.cli.client import output
from tests.harness.scripted_client import ScriptedClient


class Publisher(ScriptedClient):
    """A queue; `known` says whether its length is known."""

    def __init__(self, *offsets: int, known: bool = True, editable: bool = True) -> None:
        super().__init__(self._answered)
        self.offsets, self.known, self.editable = offsets, known, editable
        self.cleared: list[tuple[Any, Any]] = []

    def _answered(self, request: Request) -> Any:
        if request.method == "POST":
            self.cleared.append((request.body, request.headers))
            return {"command_id": "id", "agent": "main", "packages": 4, "packages_at_most": 9}
        if request.path == "/queues/sub1?limit=1":
            return self._queue(), '"tag"'
        up_to = int(request.path.removeprefix("/queues/sub1/clear?up_to_offset="))
        packages = sum(offset <= up_to for offset in self.offsets)
        return {"packages": packages, "packages_at_most": packages + (not self.known)}

    def _queue(self) -> dict[str, Any]:
        return {
            "subscriber": "sub1",
            "agent": "main",
            "editable": self.editable,
            "length": len(self.offsets) if self.known else None,
            "at_least": len(self.offsets) if self.known else 2,
            "head": None,
        }


def requested_for(publisher: Publisher, up_to: int | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Clear, and return the question that was asked."""
    questions: list[str] = [""]
    monkeypatch.setattr(output, "require_yes", lambda question, _: questions.append(question))
    clearing.clear_packages(publisher, "sub1", up_to, ask=True, wait_s=None)
    return questions[-1]


@pytest.mark.parametrize(
    ("up_to", "says"),
    [
        (None, "Remove 7 waiting packages of sub1"),
        (10, "Remove 1 waiting package of sub1"),
        (15, "Remove 2 waiting packages of sub1"),
        (40, "Remove 4 waiting packages of sub1"),
    ],
)
def test_the_question_names_what_the_bound_covers(
    monkeypatch: pytest.MonkeyPatch, up_to: int | None, says: str
) -> None:
    publisher = Publisher(10, 11, 30, 40, 50, 60, 70)
    assert says in requested_for(publisher, up_to, monkeypatch)
    body = {} if up_to is None else {"up_to_offset": up_to}
    assert publisher.cleared == [(body, {"If-Match": '"tag"'})]


@pytest.mark.parametrize(("offsets", "up_to"), [((), None), ((10,), 9)])
def test_nothing_is_asked_where_nothing_waits(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    offsets: tuple[int, ...],
    up_to: int | None,
) -> None:
    publisher = Publisher(*offsets)
    assert requested_for(publisher, up_to, monkeypatch) == ""
    assert publisher.cleared == []
    assert "nothing of agent main waits for sub1" in capfd.readouterr().err


def test_nothing_is_asked_where_the_answer_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(10, editable=False)
    assert requested_for(publisher, None, monkeypatch) == ""
    assert publisher.cleared == [({}, {"If-Match": '"tag"'})], "the publisher says why"


def test_a_length_that_is_not_known_is_reported_as_at_least(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "at least 2 waiting" in requested_for(Publisher(1, 2, 3, known=False), None, monkeypatch)
    long = Publisher(*range(100), known=False)
    assert "at least 100 waiting" in requested_for(long, 99, monkeypatch)
    assert "at least 4 waiting packages" in capfd.readouterr().err
