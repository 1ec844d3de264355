"""`packhorse distribute`: what is told when nobody answers, and whom it waits for."""

from typing import Any

import pytest

from packhorse_services.cli.client.api import CommandFailed, Exit, NoAnswer, Refused
from packhorse_services.cli.distribute import command


class Publisher:
    """Gives prepared answers."""

    def __init__(self, *documents: dict[str, Any] | CommandFailed) -> None:
        self._documents = list(documents)
        self.sent: list[dict[str, str]] = []

    def post(self, path: str, body: object, headers: dict[str, str]) -> Any:
        self.sent.append(headers)
        raise NoAnswer("nobody answers", Exit.TIMEOUT)

    def get(self, path: str) -> dict[str, Any]:
        assert path.startswith("/distributions/id?wait=")
        answer = self._documents.pop(0)
        if isinstance(answer, CommandFailed):
            raise answer
        return answer


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


@pytest.mark.parametrize("key", [None, "mine"])
def test_a_request_without_an_answer_names_the_key_to_repeat_it_with(key: str | None) -> None:
    publisher = Publisher()
    with pytest.raises(CommandFailed) as failed:
        command.request(publisher, {}, key)  # type: ignore[arg-type]
    [headers] = publisher.sent
    assert f"--key {headers['Idempotency-Key']}" in str(failed.value)
    assert failed.value.code is Exit.TIMEOUT
    assert key in (None, headers["Idempotency-Key"])


def test_it_waits_for_all_that_live_and_names_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    publisher = Publisher(
        document("QUEUED", a="IMPORTED", b="RETRYING"),
        document("PARTLY_DISTRIBUTED", a="IMPORTED", b="SKIPPED", c="QUEUED?"),
    )
    command.await_distributed(publisher, "id", 60)  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert "c is silent" in told
    assert "b did not import it" in told
    assert "PARTLY_DISTRIBUTED" in told, "R31: it is not everywhere"


AWAY = NoAnswer("nobody answers")
STARTING = Refused("not yet", Exit.FAILED, status=503, kind="unavailable", retry_after_s=None)
GONE = Refused("no such distribution", Exit.NOT_FOUND, status=404, kind="x", retry_after_s=None)


def test_a_publisher_that_is_away_meanwhile_ends_no_wait() -> None:
    command.await_distributed(Publisher(AWAY, STARTING, document("DISTRIBUTED")), "id", 60)  # type: ignore[arg-type]
    with pytest.raises(NoAnswer):
        command.await_distributed(Publisher(AWAY, AWAY), "id", 0)  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match="no such distribution"):
        command.await_distributed(Publisher(GONE), "id", 60)  # type: ignore[arg-type]


def test_a_failure_ends_the_wait_at_once_and_time_does_too() -> None:
    failing = Publisher(document("QUEUED", a="REMOVED_FAILED", b="QUEUED"))
    with pytest.raises(CommandFailed, match="a: REMOVED_FAILED"):
        command.await_distributed(failing, "id", 60)  # type: ignore[arg-type]
    done = Publisher(document("PARTLY_DISTRIBUTED", a="REMOVED", b="IMPORTED"))
    with pytest.raises(CommandFailed, match="a: REMOVED"):
        command.await_distributed(done, "id", 60)  # type: ignore[arg-type]
    done = Publisher(document("PARTLY_DISTRIBUTED", a="DUPLICATE", b="IMPORTED"))
    with pytest.raises(CommandFailed, match="a: DUPLICATE"):
        command.await_distributed(done, "id", 60)  # type: ignore[arg-type]
    slow = Publisher(document("QUEUED", a="QUEUED"), document("QUEUED", a="QUEUED"))
    with pytest.raises(CommandFailed, match="not everywhere after 0 s: a QUEUED") as failed:
        command.await_distributed(slow, "id", 0)  # type: ignore[arg-type]
    assert failed.value.code is Exit.TIMEOUT


def test_who_is_not_waited_for_is_marked_and_a_reason_is_told() -> None:
    one = document("QUEUED", a="QUEUED?", b="QUEUED")
    one["subscribers"][1]["reason"] = "PAUSED"
    with pytest.raises(CommandFailed) as failed:
        command.await_distributed(Publisher(one, one), "id", 0)  # type: ignore[arg-type]
    assert str(failed.value).endswith("b QUEUED PAUSED; a QUEUED (STALE, not waited for)")


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_is_refused(key: str) -> None:
    publisher = Publisher()
    with pytest.raises(CommandFailed, match="--key is empty") as failed:
        command.request(publisher, {}, key)  # type: ignore[arg-type]
    assert failed.value.code is Exit.USAGE
    assert publisher.sent == []
