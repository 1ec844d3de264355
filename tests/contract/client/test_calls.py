"""What the library's clients say of a service that refuses, loses answers, or is not there."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from packhorse import AsyncClient, Client
from packhorse.client.errors import (
    Conflict,
    Denied,
    Invalid,
    Misused,
    NoAnswer,
    NotFound,
    NotInTime,
    NotReached,
    Rejected,
    Unavailable,
    Unreadable,
)
from tests.contract.client.conftest import Do
from tests.harness.played_service import ACCEPTED, CUT, Answer, Service, fine, problem


@pytest.mark.parametrize(
    "call",
    [
        ("distribute", "/a"),
        ("create_release", "spring"),
        ("redistribute", "sub1", 7),
        ("add_job", "images/scale"),
        ("send_event", "images/scaled"),
    ],
    ids=lambda call: call[0],
)
def test_its_own_key_is_kept_and_reported_when_nobody_answers(
    do: Do, service: Service, call: tuple[Any, ...]
) -> None:
    service.answers = [CUT]
    with pytest.raises(NoAnswer, match="key='mine'") as failed:
        do(*call, key="mine", patience_s=0.0)
    assert failed.value.key == "mine"
    assert service.headers("Idempotency-Key") == ["mine"]


def test_nobody_is_there(do: Do, service: Service) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(NotReached, match=r"nobody answers at .* is it running"):
            do("queues", url=url, patience_s=0.0)


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (problem(422, "invalid", detail="a path is wrong"), Invalid, "a path is wrong"),
        (problem(401, "unauthenticated"), Denied, "PACKHORSE_TOKEN_FILE"),
        (problem(404, "not-found", detail="no such"), NotFound, "no such"),
        (problem(404, "not-found"), NotFound, "the right service"),
        (problem(409, "not-editable"), Conflict, "not-editable"),
        (problem(503, "away", "2"), Unavailable, "Try again in 2 s"),
        ((502, {}, "<html>Bad gateway</html>"), Unavailable, "answered 502 Bad Gateway"),
        ((200, {}, "<html>Sign in</html>"), Unreadable, "no JSON"),
    ],
)
def test_a_problem_is_an_exception_that_says_what_to_do(
    do: Do, service: Service, answer: Answer, error: type[Exception], says: str
) -> None:
    service.answers = [answer]
    with pytest.raises(error, match=says):
        do("queues", patience_s=0.0)


def test_a_refusal_has_the_problem_itself(do: Do, service: Service) -> None:
    service.answers = [problem(409, "key-reused", errors=[{"pointer": "/a", "detail": "b"}])]
    with pytest.raises(Conflict) as refused:
        do("distribute", "/a")
    assert (refused.value.status, refused.value.kind) == (409, "key-reused")
    assert refused.value.problem["errors"][0]["pointer"] == "/a"


def test_documents_have_their_fields_as_attributes(do: Do, service: Service) -> None:
    service.answers = [fine(queues=[{"subscriber": "sub1", "head": {"offset": 4}}])]
    [queue] = do("queues")
    assert (queue.subscriber, queue["head"]["offset"], queue.head.offset) == ("sub1", 4, 4)
    with pytest.raises(AttributeError, match="no 'nothing'"):
        queue.nothing  # noqa: B018
    assert service.headers("Authorization") == ["Bearer secret"]


def test_a_list_is_gathered_from_its_pages(do: Do, service: Service) -> None:
    pages = [
        fine(distributions=[{"id": "a"}], next="/distributions?cursor=x&limit=1000"),
        fine(distributions=[], next="/distributions?cursor=y&limit=1000"),
        fine(distributions=[{"id": "b"}], next=None),
    ]
    service.answers = pages
    assert [one.id for one in do("distributions", limit=5)] == ["a", "b"]
    assert [path for _, path, _, _ in service.requested] == [
        "/distributions?limit=5",
        "/distributions?cursor=x&limit=4",
        "/distributions?cursor=y&limit=4",
    ]


def at(name: str, state: str, reason: str = "") -> dict[str, Any]:
    return {"subscriber": name, "state": state, "reason": reason, "stale": False}


def test_waiting_ends_with_the_first_failure_and_names_it(do: Do, service: Service) -> None:
    failing = [at("sub1", "QUEUED"), at("sub2", "REMOVED_FAILED", "CheckViolation")]
    service.answers = [ACCEPTED, CUT, fine(state="QUEUED", subscribers=failing)]
    found = do("distribute", "/a", wait=60)
    assert found.failed == {"sub2": "REMOVED_FAILED CheckViolation"}


def test_waiting_has_an_end_and_names_what_goes_on(do: Do, service: Service) -> None:
    service.answers = [ACCEPTED, fine(state="QUEUED", subscribers=[at("sub1", "QUEUED")])]
    with pytest.raises(NotInTime, match="the distribution d1 is QUEUED") as failed:
        do("distribute", "/a", wait=-1.0)
    assert failed.value.document["state"] == "QUEUED"


def test_a_command_is_waited_for(do: Do, service: Service) -> None:
    issued = fine(202, command_id="c1", state="ISSUED")
    applied = fine(command_id="c1", state="APPLIED", removed=3)
    service.answers = [issued, fine(state="SEEN"), applied]
    assert do("clear", "sub1", up_to=9, wait=60).removed == 3
    service.answers = [issued, fine(state="REJECTED", subscriber="sub1", reason="away")]
    with pytest.raises(Rejected, match="sub1 rejected it: away"):
        do("retry", "sub1", wait=60)
    service.answers = [issued, applied, fine(state="RUNNING"), fine(state="PAUSED")]
    assert do("pause", "sub1", wait=60).state == "APPLIED"


@pytest.mark.parametrize("key", ["", " ", "k\u00e9y"])
def test_a_key_that_is_none_is_refused_before_anything_is_sent(
    do: Do, service: Service, key: str
) -> None:
    with pytest.raises(Misused):
        do("distribute", "/a", key=key)
    assert not service.requested


@pytest.mark.parametrize("url", ["host:80", "localhost", "ftp://host", "http://", "http://h:x"])
def test_what_is_no_url_is_refused(do: Do, url: str) -> None:
    with pytest.raises(Misused, match="no URL of a server"):
        do("queues", url=url)


def test_public_calls_are_the_same_in_both_forms() -> None:
    def calls(client: Callable[..., Any]) -> set[str]:
        return {name for name in vars(client) if not name.startswith("_")}

    assert calls(Client) == calls(AsyncClient)
