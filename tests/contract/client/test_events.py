"""Streams of events as the clients of all languages follow them: lost, refused, silent."""

import pytest

from tests.contract.client.conftest import Ask
from tests.contract.client.prepared import PACKAGES, block, event
from tests.harness.played_service import CUT, UNANSWERED, Answer, Service, problem, stream
from tests.harness.waiting import eventually

BEHIND = "id: p2\n\n"
CUT_OFF = "event: package\nid: p3\ndata: {"


def positions(service: Service) -> list[str | None]:
    return service.headers("Last-Event-Id")


def test_it_goes_on_behind_the_last_position_wherever_the_stream_is_lost(
    ask: Ask, service: Service
) -> None:
    told = f"retry: 3000\n{block(1).partition(chr(10) * 2)[2]}"
    service.answers = [
        stream(told + BEHIND + CUT_OFF, missing=100),
        problem(503, "away", "7"),
        problem(429, "full", "7"),
        stream(block(3, "gap").replace("\n", "\r\n")),
        stream(block(4)),
    ]
    found = ask("events", **PACKAGES, count=3)
    assert found.result == [event(1), event(3, "gap"), event(4)]
    assert positions(service) == ["p0", "p2", "p2", "p2", "p3"]
    assert {path for _, path, _, _ in service.requested} == {PACKAGES["path"]}
    assert set(service.headers("Authorization")) == {"Bearer secret"}
    assert found.pauses[0] == 3.0
    assert 7.0 in found.pauses


def test_an_event_without_an_id_has_the_last_one(ask: Ask, service: Service) -> None:
    without = block(2).replace("id: p2\n", "")
    service.answers = [stream(block(1) + without), stream(block(3))]
    found = ask("events", **PACKAGES, count=2)
    assert found.result == [event(1), {**event(2), "id": "p1"}]


@pytest.mark.parametrize("told", ["0", "-5", "9300000000000", "9" * 400])
def test_a_pause_is_one_whatever_a_stream_says_of_it(ask: Ask, service: Service, told: str) -> None:
    service.answers = [stream(f"retry: {told}\n{block(1)}"), stream(block(2))]
    found = ask("events", **PACKAGES, count=2)
    assert found.result == [event(1), event(2)]
    assert 0 < found.pauses[0] <= 30


def test_a_stream_that_is_silent_or_does_not_begin_is_lost(ask: Ask, service: Service) -> None:
    falls_silent = stream(block(1), missing=100, silent=True)

    def each_is_lost_once() -> bool:  # or another answer too, if somebody stood still
        service.requested.clear()
        service.answers = [UNANSWERED, falls_silent, UNANSWERED, stream(block(2))]
        told = ask("events", **PACKAGES, count=2, silence=0.5)
        assert told.result == [event(1), event(2)]
        return positions(service) == ["p0", "p0", "p1", "p1"]

    eventually(each_is_lost_once)


@pytest.mark.parametrize("connected", [False, True])
def test_what_is_refused_for_good_ends_it(ask: Ask, service: Service, connected: bool) -> None:
    refusal = problem(401, "unauthenticated", detail="the token is unknown")
    service.answers = [*[stream(block(1))] * connected, refusal]
    told = ask("events", **PACKAGES, count=2)
    assert (told.status, told.kind) == (401, "unauthenticated")
    assert "the token is unknown" in told.said
    assert len(service.requested) == 1 + connected


@pytest.mark.parametrize(("fault", "status"), [(CUT, 0), (problem(503, "away"), 503)])
def test_the_first_connection_is_tried_as_long_as_the_client_is_patient(
    ask: Ask, service: Service, fault: Answer, status: int
) -> None:
    service.answers = [fault]
    assert ask("events", **PACKAGES, count=1, patience=0.0).status == status
    assert len(service.requested) == 1
