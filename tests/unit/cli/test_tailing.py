"""`packhorse job tail`: a job's log as it grows, and what becomes of all jobs."""

import json
import time
from typing import Any

import pytest

from packhorse.client.errors import NoAnswer, NotFound, Refused, Unavailable
from packhorse.client.exchange import Answer, Effect
from packhorse.client.following import Gap, StreamEvent
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.views import Format
from packhorse_services.cli.jobs import tailing
from tests.unit.cli.jobs_service import Service, job


def tail(service: Service, form: Format = Format.TABLE) -> None:
    tailing.tail(service, 7, form=form, poll_s=0.0)


def test_each_line_of_the_log_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    reported = {"step": 1, "steps": 2, "eta": None, "message": "half"}
    service = Service(
        job(7),
        job(7, "ACTIVE", instance="w1", attempts=2, log=["one"], progress=reported),
        job(7, "ACTIVE", instance="w1", attempts=2, log=["one", "two\x1b"], progress=reported),
        job(7, "SUCCEEDED", instance="w1", attempts=2, log=["two\x1b", "three\nSUCCEEDED"]),
    )
    tail(service)
    said = capsys.readouterr()
    assert said.out.splitlines() == ["one", "two\\x1b", "three\\nSUCCEEDED"]
    assert said.err.splitlines() == [
        "QUEUED",
        "ACTIVE on w1, attempt 2, 1 of 2: half",
        "SUCCEEDED, attempt 2",
    ]


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ([], ["a"], ["a"]),
        (["a", "b"], ["a", "b"], []),
        (["a", "b", "c"], ["b", "c", "d"], ["d"]),
        (["a", "b"], ["x", "y"], ["x", "y"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a"], [], []),
    ],
)
def test_of_a_log_only_the_newest_lines_are_known(
    before: list[str], after: list[str], new: list[str]
) -> None:
    assert list(tailing.new_lines(before, after)) == new


def test_another_end_than_success_is_a_failure() -> None:
    with pytest.raises(CommandFailed, match="job 7 is GIVEN_UP: no disk") as failed:
        tail(Service(job(7, "GIVEN_UP", result_message="no disk")))
    assert failed.value.code == Exit.FAILED


def test_a_lost_connection_is_waited_for_but_the_first_must_work() -> None:
    away = Unavailable("away", 503)
    service = Service(job(7), NoAnswer("silence"), away, job(7, "SUCCEEDED"))
    tail(service)
    assert service.answers == []
    with pytest.raises(NoAnswer):
        tail(Service(NoAnswer("silence")))
    gone = NotFound("gone", 404)
    with pytest.raises(Refused):
        tail(Service(job(7), gone))


def test_waiting_has_an_end() -> None:
    class Silent(Service):
        def _done(self, effect: Effect) -> Answer | float:
            time.sleep(600)  # until the time is up
            return 0.0

    with pytest.raises(CommandFailed, match="packhorse job tail 7") as failed:
        tailing.wait(Silent(), 7, 0.05)
    assert failed.value.code == Exit.TIMEOUT


def test_states_and_documents_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    seen = [job(7), job(7), job(7, "SUCCEEDED")]
    tail(Service(*seen), Format.NAME)
    assert capsys.readouterr().out.split() == ["QUEUED", "SUCCEEDED"]
    tail(Service(*seen), Format.JSON)
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert shown == [seen[0], seen[2]]


def event(kind: str, **properties: Any) -> StreamEvent:
    given = {"number": 7, "topic": "a/b", "state": "QUEUED", "attempts": 1, **properties}
    data = {"topic": f"packhorse/job/{kind}", "created_at": "2026-01-01T12:00:00Z"}
    return StreamEvent("event", "position", {**data, "properties": given})


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        (event("ADDED", id="x"), "ADDED      7  a/b x  QUEUED"),
        (event("START", state="ACTIVE", instance="w1"), "START      7  a/b  ACTIVE on w1"),
        (event("FAILED", reason="no\x1b"), "FAILED     7  a/b  QUEUED: no\\x1b"),
        (Gap("gap", "p", {"reason": "PRUNED"}), "events are lost"),
        (StreamEvent("LATER", "p", ["new"]), 'LATER  ["new"]'),
    ],
)
def test_each_event_is_a_line(reported: StreamEvent, shown: str) -> None:
    line = tailing._SHOWN[Format.TABLE](reported)
    assert shown in line
    assert "\n" not in line
    assert tailing._SHOWN[Format.WIDE](reported) == f"{line}  {reported.id}"


def test_the_name_of_an_event_is_its_job() -> None:
    assert tailing._as_name(event("ADDED")) == "7"
    assert tailing._as_name(Gap("gap", "p", {})) == "gap"
