"""What both clients send for a release, and how they wait for one that is not sent."""

from datetime import UTC, datetime
from typing import Any

import pytest

from packhorse.client.errors import Misused, NoAnswer
from tests.contract.client.conftest import Do
from tests.harness.played_service import ACCEPTED, CUT, Service, fine


def test_a_moment_is_sent_under_the_key_of_the_request(do: Do, service: Service) -> None:
    service.answers = [CUT, ACCEPTED]
    do("distribute", "/a", at=datetime(2999, 1, 2, tzinfo=UTC))
    assert {body["at"] for _, _, _, body in service.requested} == {"2999-01-02T00:00:00+00:00"}
    assert len(set(service.headers("Idempotency-Key"))) == 1
    with pytest.raises(Misused, match="time zone"):
        do("distribute", "/a", at=datetime(2999, 1, 2))  # noqa: DTZ001


def test_a_release_is_planned_filled_moved_sent_and_cancelled(do: Do, service: Service) -> None:
    service.answers = [CUT, fine(201, id="release-1")]
    assert do("create_release", "spring", "/a", deep=["/b"], at="now").id == "release-1"
    service.answers = [fine(id="release-1")] * 7
    for call, *given in (
        ("add_to_release", "spring", "/c"),
        ("remove_from_release", "spring", "/c"),
        ("reschedule_release", "spring", "2999-01-01T00:00:00Z"),
        ("reschedule_release", "spring", None),
        ("send_release", "spring"),
        ("cancel_release", "spring"),
        ("release", "spring"),
    ):
        do(call, *given)
    asked = [(method, path, body) for method, path, _, body in service.requested]
    first = {"name": "spring", "action": "ADD", "paths": ["/a"], "deep_paths": ["/b"], "at": "now"}
    assert asked[:2] == [("POST", "/releases", first)] * 2
    assert [(method, body) for method, _, body in asked[2:]] == [
        ("PATCH", {"add_paths": ["/c"]}),
        ("PATCH", {"remove_paths": ["/c"]}),
        ("PATCH", {"at": "2999-01-01T00:00:00Z"}),
        ("PATCH", {"at": None}),
        ("PATCH", {"at": "now"}),
        ("DELETE", None),
        ("GET", None),
    ]
    assert {path for _, path, _ in asked[2:]} == {"/releases/spring"}


@pytest.mark.parametrize("call", [("distribute", "/a"), ("create_release", "spring", "/a")])
@pytest.mark.parametrize(("to", "targets"), [("sub1", ["sub1"]), (("a", "b"), ["a", "b"])])
def test_targets_are_one_name_or_several(
    do: Do, service: Service, call: tuple[str, ...], to: Any, targets: list[str]
) -> None:
    service.answers = [ACCEPTED]
    do(*call, to=to)
    assert [body["targets"] for _, _, _, body in service.requested] == [targets]


def test_what_can_be_repeated_is_when_its_answer_is_lost(do: Do, service: Service) -> None:
    service.answers = [CUT, fine(id="release-1")]
    do("send_release", "spring")
    assert len(service.requested) == 2
    service.answers = [CUT]
    with pytest.raises(NoAnswer):
        do("remove_from_release", "spring", "/c")


def test_releases_are_listed(do: Do, service: Service) -> None:
    service.answers = [fine(releases=[{"id": "a"}], next=None)]
    assert [one.id for one in do("releases", state="SCHEDULED")] == ["a"]
    assert service.requested[0][1] == "/releases?state=SCHEDULED&limit=100"


def test_waiting_ends_with_a_release_that_is_not_sent(do: Do, service: Service) -> None:
    service.answers = [fine(state="FAILED", reason="'/a' does not exist", subscribers=[])]
    assert do("wait_for", "release-1").failed == {"publisher": "FAILED '/a' does not exist"}
