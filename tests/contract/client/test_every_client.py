"""What the clients of all languages make of the same answers, refusals and faults.

The library's are `Client` and `AsyncClient`; the others are the packages that `make clients`
builds, as a user installs them.
"""

import json
import socket
import zipfile
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from tests.contract.client.conftest import Ask
from tests.contract.client.prepared import example
from tests.harness.client_packages import NAME, built
from tests.harness.client_runners import LANGUAGES, Runner
from tests.harness.client_tools import CLIENTS
from tests.harness.played_service import ACCEPTED, CUT, Answer, Service, fine, problem

CLEARED = fine(
    202,
    command_id="c1",
    agent="main",
    subscriber="sub1",
    up_to_offset=4,
    packages=1,
    packages_at_most=1,
)
REGISTERED = fine(name="nightly", epoch=3, last_sequence=2)


@pytest.mark.parametrize(
    "fault",
    [
        problem(429, "queue-full", "7"),
        problem(503, "away", "7"),
        problem(502, "x"),
        problem(408, "too-slow"),
        problem(409, "key-in-progress", "7"),
        CUT,
    ],
    ids=["full", "away", "no Retry-After", "too slow", "under way", "cut"],
)
def test_a_distribution_is_sent_again_under_its_key(
    ask: Ask, service: Service, fault: Answer
) -> None:
    service.answers = [fault, fault, ACCEPTED]
    told = ask("distribute", path="/a")
    assert told.result == {"id": "d1", "repeated": False}
    [key] = set(service.headers("Idempotency-Key"))
    assert key
    assert len(service.requested) == 3
    assert all(body["paths"] == ["/a"] for _, _, _, body in service.requested)
    if "Retry-After" in fault[1]:
        assert [pause for pause in told.pauses if pause] == [7.0, 7.0]


@pytest.mark.parametrize("asked", ["9300000000", "9" * 400, "-1", "+1", "1e3", "soon"])
def test_what_no_service_asks_for_is_a_usual_pause(ask: Ask, service: Service, asked: str) -> None:
    service.answers = [problem(503, "away", asked), ACCEPTED]
    told = ask("distribute", path="/a", patience=1e9)
    assert told.status == 200
    assert 0 < max(told.pauses) <= 10


def test_a_job_is_added_under_the_key_that_was_given(ask: Ask, service: Service) -> None:
    added = example("jobs", "addJob")
    service.answers = [CUT, fine(201, **added)]
    told = ask("add_job", topic="images/scale", key="mine")
    assert told.result == {"number": added["job"]["number"], "verdict": added["verdict"]}
    assert service.headers("Idempotency-Key") == ["mine", "mine"]
    assert service.headers("Authorization") == ["Bearer secret"] * 2


@pytest.mark.parametrize(("fault", "status"), [(CUT, 0), (problem(503, "away", "2"), 503)])
def test_without_patience_it_is_sent_once(
    ask: Ask, service: Service, fault: Answer, status: int
) -> None:
    service.answers = [fault]
    assert ask("distribute", path="/a", patience=0.0).status == status
    assert len(service.requested) == 1


def test_nobody_is_there(ask: Ask) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert ask("clear", subscriber="sub1", url=url, patience=0.0).status == 0


def test_a_clear_without_a_bound_is_not_sent_twice(ask: Ask, service: Service) -> None:
    service.answers = [CUT, CLEARED]
    assert ask("clear", subscriber="sub1").status == 0
    assert len(service.requested) == 1, "it would remove what came in between"
    assert int(service.headers("Content-Length")[0] or 0) < len("null"), "nothing, or {}"
    service.answers = [problem(429, "full", "0"), CUT, problem(503, "away", "0"), CLEARED]
    told = ask("clear", subscriber="sub1", up_to=4, repeatable=True)
    assert told.result == {"command_id": "c1", "up_to_offset": 4}
    assert {body.get("up_to_offset") for _, _, _, body in service.requested[1:]} == {4}


@pytest.mark.parametrize(("lost", "status"), [(CUT, 0), (problem(503, "away", "0"), 503)])
def test_the_removal_of_a_job_is_not_sent_twice(
    ask: Ask, service: Service, lost: Answer, status: int
) -> None:
    service.answers = [problem(429, "full", "0"), lost, (204, {}, "")]
    assert ask("remove_job", number=7).status == status
    assert len(service.requested) == 2, "the first has ended it; another one would forget it"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "unauthenticated"),
        (404, "not-found"),
        (409, "key-reused"),
        (410, "key-forgotten"),
        (422, "invalid"),
    ],
)
def test_a_refusal_has_the_problem(ask: Ask, service: Service, status: int, kind: str) -> None:
    service.answers = [problem(status, kind, errors=[{"pointer": "/a", "detail": "b"}])]
    told = ask("distribute", path="/a")
    assert (told.status, told.kind) == (status, kind)
    assert len(service.requested) == 1


def test_a_refusal_is_an_error_that_says_the_detail(ask: Ask, service: Service) -> None:
    service.answers = [problem(404, "not-found", detail="there is no such queue: Größe")]
    assert "there is no such queue: Größe" in ask("queues").said


def test_of_a_long_refusal_the_beginning_is_read(ask: Ask, service: Service) -> None:
    """What is behind a mebibyte never comes: who waits for it, takes the answer for lost."""
    status, headers, text = problem(422, "invalid")
    longer = text + " " * (1024**2 + 1000)
    service.answers = [(status, {**headers, "Content-Length": str(len(longer) + 1000)}, longer)]
    told = ask("distribute", path="/a")
    assert (told.status, told.kind) == (422, "invalid")
    assert len(service.requested) == 1


def test_a_page_of_a_proxy_is_a_refusal_with_its_status(ask: Ask, service: Service) -> None:
    service.answers = [(502, {"Content-Type": "text/html"}, "<html>Bad gateway</html>")]
    told = ask("queues", patience=0.0)
    assert (told.result, told.status) == (None, 502)


def test_a_page_in_the_place_of_an_answer_is_no_success(ask: Ask, service: Service) -> None:
    """Somebody before the service asks who is there."""
    service.answers = [(200, {"Content-Type": "text/html"}, "<html>Sign in</html>")]
    assert ask("distribute", path="/a").result is None
    assert len(service.requested) == 1


@pytest.mark.parametrize("language", ["typescript", "java"])
def test_a_report_is_a_page(
    language: str, runner_of: Callable[[str], Runner], service: Service
) -> None:
    service.answers = [(200, {"Content-Type": "text/html; charset=utf-8"}, "<h1>Größe</h1>")]
    told = runner_of(language).call("document", url=service.url, token="", patience=0.0)
    assert told.result == "<h1>Größe</h1>", told


def test_a_value_that_a_later_version_adds_is_no_error(ask: Ask, service: Service) -> None:
    added = example("jobs", "addJob")
    service.answers = [fine(201, **{**added, "verdict": "LATER"})]
    told = ask("add_job", topic="images/scale")
    assert told.status == 200, told
    assert told.result["number"] == added["job"]["number"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_state_that_a_later_version_adds_is_no_error(
    language: str, runner_of: Callable[[str], Runner], service: Service
) -> None:
    service.answers = [fine(**{**example("cleanup", "getCleanupRun"), "id": 7, "state": "LATER"})]
    told = runner_of(language).call("run", url=service.url, token="", patience=0.0, number=7)
    assert told.result == 7, told


def test_queues_and_errors_are_read(ask: Ask, service: Service) -> None:
    listed = example("publisher", "listQueues")
    service.answers = [CUT, fine(**listed)]
    assert ask("queues").result == [one["subscriber"] for one in listed["queues"]]
    failed = example("publisher", "getErrorQueue")
    place = urlencode({"cursor": "a+b c/ß=", "limit": 1})
    first = fine(**{**failed, "next": f"/queues/sub%201/errors?{place}"})
    service.answers = [first, fine(**{**failed, "next": None})]
    shown = [{"offset": one["offset"], "reason": one["reason"]} for one in failed["entries"]]
    assert ask("errors", subscriber="sub 1").result == shown * 2
    path, _, query = service.requested[-1][1].partition("?")
    assert path == "/queues/sub%201/errors"
    assert parse_qs(query)["cursor"] == ["a+b c/ß="]


def test_a_job_and_the_topology_are_read(ask: Ask, service: Service) -> None:
    job = example("jobs", "getJob")
    service.answers = [fine(**{**job, "properties": {"size": 3}})]
    told = ask("job", number=job["number"])
    assert told.result == {"number": job["number"], "state": job["state"], "size": 3}
    topology = example("topology", "getTopology")
    service.answers = [fine(**topology)]
    instances = [len(one["instances"]) for one in topology["clusters"]]
    assert ask("topology").result == {"current": topology["current"], "instances": instances}


def test_a_node_is_named_by_its_path(ask: Ask, service: Service) -> None:
    service.answers = [CUT, fine(path="/a/b c", etag="e1")]
    assert ask("put_node", path="/a/b c").result == {"path": "/a/b c"}
    node = {"path": "/a/b c", "type": "page", "properties": {"title": "Größe"}, "binaries": {}}
    service.answers = [fine(**node)]
    assert ask("node", path="/a/b c").result == {"path": "/a/b c", "type": "page", "title": "Größe"}
    assert {path for _, path, _, _ in service.requested} == {"/content/a/b%20c"}


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("node", {"path": "/a/../b"}),
        ("node", {"path": "/a//b"}),
        ("put_node", {"path": "/a/."}),
        ("errors", {"subscriber": ".."}),
        ("clear", {"subscriber": "."}),
        ("errors", {"subscriber": ""}),
    ],
)
def test_a_name_that_would_name_another_resource_is_refused_before_it_is_sent(
    ask: Ask, service: Service, call: str, named: dict[str, str]
) -> None:
    service.answers = [fine()]
    told = ask(call, **named)
    assert (told.result, told.status) == (None, 0)
    assert not service.requested


def test_names_may_have_dots(ask: Ask, service: Service) -> None:
    service.answers = [fine(path="/a/..b/.c", etag="e1")]
    assert ask("put_node", path="/a/..b/.c").result == {"path": "/a/..b/.c"}
    assert service.requested[-1][1] == "/content/a/..b/.c"
    listed: dict[str, Any] = {**example("publisher", "getErrorQueue"), "next": None}
    service.answers = [fine(**listed)]
    assert ask("errors", subscriber="a/../b+").status == 200
    assert service.requested[-1][1].partition("?")[0].replace("+", "%2B") == (
        "/queues/a%2F..%2Fb%2B/errors"
    )


def test_a_producer_goes_on_behind_its_last_number_and_tries_for_ever(
    ask: Ask, service: Service
) -> None:
    faults = [CUT, problem(503, "duplicate-unknown", "0"), problem(429, "queue-full", "600")] * 3
    passed = problem(410, "sequence-passed")
    service.answers = [CUT, REGISTERED, *faults, ACCEPTED, passed, ACCEPTED]
    told = ask(
        "produce",
        name="nightly",
        path="/a",
        sequences=[1, 2, 3, 4, 5],
        patience=-1,
        repeatable=True,
    )
    assert told.result == [False, True, False]
    numbered = [body["producer"] for method, _, _, body in service.requested if method == "POST"]
    assert [one["sequence"] for one in numbered] == [3] * 10 + [4, 5]
    assert {one["epoch"] for one in numbered} == {3}
    assert set(service.headers("Idempotency-Key")) == {None}, "it has a number instead"


def test_a_producer_that_somebody_else_has_registered_stops(ask: Ask, service: Service) -> None:
    service.answers = [REGISTERED, problem(409, "producer-fenced")]
    told = ask("produce", name="nightly", path="/a", sequences=[3], patience=-1, repeatable=True)
    assert (told.status, told.kind) == (409, "producer-fenced")
    assert len(service.requested) == 2


def test_what_is_committed_names_no_registry() -> None:
    lock = json.loads((CLIENTS / "typescript" / "package-lock.json").read_text())
    assert not [name for name, one in lock["packages"].items() if "resolved" in one]


def test_the_jar_has_the_readme() -> None:
    with zipfile.ZipFile(built() / f"{NAME}.jar") as jar:
        shown = jar.read("META-INF/README.md")
    assert shown == (CLIENTS / "java" / "README.md").read_bytes()
