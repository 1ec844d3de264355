"""Every error is a problem document, and says nothing that is not the caller's business."""

import json

import psycopg
import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from psycopg_pool import PoolTimeout

from packhorse.db.connect import AWAY
from packhorse.errors import PackhorseError, Permanent, Transient
from packhorse.runtime.problems import GENERIC, Problem, Table, documented, problem_from, render
from packhorse.runtime.validation import problem_of_validation
from tests.unit.runtime.apps import call, sample_app, send_json


@pytest.mark.parametrize(
    ("kind", "status", "slug", "detail"),
    [
        ("transient", 503, "unavailable", "the journal is away; try again"),
        ("permanent", 422, "refused", "/a is no path; send another"),
        ("missing", 404, "missing", "/a is not there"),
        ("database", 503, "unavailable", "The database is away or too busy; try again."),
        ("bug", 500, "internal", "The server's log has more, under the request id."),
    ],
)
def test_an_exception_becomes_its_problem(kind: str, status: int, slug: str, detail: str) -> None:
    answer = call(sample_app(), "GET", f"/errors/{kind}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["type"], body["status"], body["detail"]) == (f"/problems/{slug}", status, detail)
    assert body["request_id"] == answer.headers["x-request-id"]
    assert len(body["trace_id"]) == 32
    assert "secret" not in answer.text


@pytest.mark.parametrize("kind", ["transient", "database"])
def test_what_passes_by_itself_says_when_to_try_again(kind: str) -> None:
    assert call(sample_app(), "GET", f"/errors/{kind}").headers["retry-after"] == "2"


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/orders/", 404),
        ("DELETE", "/orders", 405),
        ("GET", "/orders?limit=many", 422),
        ("GET", "/problems/made-up", 404),
        ("GET", "/docs", 404),
    ],
)
def test_the_frameworks_own_errors_are_problems(method: str, url: str, status: int) -> None:
    answer = call(sample_app(), method, url)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


def test_one_thing_is_wrong_and_two_are() -> None:
    def problem(*messages: str) -> Problem:
        errors = [{"type": "x", "loc": ("body", "a"), "msg": message} for message in messages]
        return problem_of_validation(RequestValidationError(errors))

    one, two = problem("Value error, too long"), problem("no", "Value error, no")
    assert (one.detail, two.detail) == (
        *("1 thing is wrong; see errors", "2 things are wrong; see errors"),
    )
    assert list(one.errors) == [{"pointer": "#/a", "detail": "too long"}]


def test_a_misspelt_query_parameter_is_refused_with_those_that_there_are() -> None:
    answer = call(sample_app(), "GET", "/orders?limit=1&lim=5")
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"pointer": "query/lim", "detail": "unknown; known are limit, tag"}
    ]
    assert (
        call(
            sample_app(), "POST", "/orders?dry_run=true", json={"action": "ADD", "paths": []}
        ).status_code
        == 422
    )


def test_a_query_parameter_that_is_no_list_is_given_once() -> None:
    answer = call(sample_app(), "GET", "/orders?limit=1&tag=a&tag=b&limit=5")
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"pointer": "query/limit", "detail": "given 2 times; only one is taken"}
    ]
    assert call(sample_app(), "GET", "/orders?limit=1&tag=a&tag=b").status_code == 200


def test_405_says_all_that_is_allowed() -> None:
    assert call(sample_app(), "DELETE", "/orders").headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"action":"ADD","paths":[1]}', "#/paths/0"),
        (b'{"action":"ADD"}', "#/paths"),
        (b'{"action":"MOVE","paths":[]}', "#/action"),
        (b'{"action":"ADD","paths":[],"count":"5"}', "#/count"),
        (b'{"action":"ADD","paths":[],"a/b~c":1}', "#/a~1b~0c"),
        (b"[]", "#"),
        (b"", "#"),
    ],
)
def test_a_wrong_body_says_where_it_is_wrong(body: bytes, pointer: str) -> None:
    answer = send_json(sample_app(), body)
    assert answer.status_code == 422
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]


def test_a_wrong_parameter_is_named() -> None:
    answer = call(sample_app(), "GET", "/orders?limit=many")
    assert answer.json()["errors"][0]["pointer"] == "query/limit"


def test_type_uris_lead_to_an_explanation() -> None:
    app = sample_app()
    for slug in [kind.slug for kind in GENERIC.values()] + ["missing", "refused"]:
        answer = call(app, "GET", f"/problems/{slug}")
        assert answer.status_code == 200
        assert answer.json()["type"] == f"/problems/{slug}"


_texts = st.text(st.characters(codec=None, categories=None), max_size=200)
_kinds = st.sampled_from(
    [Transient, Permanent, PackhorseError, psycopg.OperationalError, PoolTimeout, KeyError]
)


@given(_kinds, _texts)
def test_any_exception_becomes_a_document_that_can_be_sent(
    kind: type[Exception], text: str
) -> None:
    response = render(problem_from(kind(text)), request_id="r", trace_id="t")
    body = json.loads(bytes(response.body))
    assert body["status"] == response.status_code
    assert {"type", "title", "status"} <= body.keys()
    if kind in (KeyError, psycopg.OperationalError, PackhorseError):
        assert body["detail"] in (
            "The database is away or too busy; try again.",
            "The server's log has more, under the request id.",
        )


@pytest.mark.parametrize("kind", AWAY)
def test_a_database_that_is_away_or_read_only_is_to_be_asked_again(
    kind: type[psycopg.Error],
) -> None:
    answer = render(problem_from(kind("secret")))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert b"secret" not in bytes(answer.body)


@given(st.sampled_from(sorted(GENERIC)), _texts, st.lists(st.tuples(_texts, _texts), max_size=3))
def test_any_problem_can_be_sent(status: int, detail: str, errors: list[tuple[str, str]]) -> None:
    found = [{"pointer": pointer, "detail": text} for pointer, text in errors]
    response = render(Problem(status, detail=detail, errors=found))
    assert response.status_code == status
    assert json.loads(bytes(response.body)).get("detail", "") == json.loads(json.dumps(detail))


def test_the_nearest_class_decides() -> None:
    class Nearer(Transient):
        pass

    table: Table = {Transient: GENERIC[503], Nearer: GENERIC[409]}
    assert problem_from(Nearer("x"), table).status_code == 409
    assert problem_from(type("Child", (Nearer,), {})("x"), table).status_code == 409


def test_every_operation_documents_its_problems() -> None:
    document = call(sample_app(), "GET", "/openapi.json").json()
    assert set(document["paths"]) == {"/orders", "/streams/{name}", "/errors/{kind}"}
    responses = document["paths"]["/orders"]["post"]["responses"]
    assert set(responses) == {"202", "401", "403", "422", "503", "default"}
    for status in set(responses) - {"202"}:
        reference = responses[status]["content"]["application/problem+json"]["schema"]
        assert reference == {"$ref": "#/components/schemas/ProblemDocument"}
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert "FieldError" in document["components"]["schemas"]


def test_operations_are_named_for_generated_clients() -> None:
    document = call(sample_app(), "GET", "/openapi.json").json()
    assert document["paths"]["/orders"]["post"]["operationId"] == "placeOrder"
    limit = document["paths"]["/orders"]["get"]["parameters"][0]
    assert limit["schema"] == {"title": "Limit", "type": "integer", "format": "int64"}


def test_documented_statuses_are_those_asked_for() -> None:
    assert set(documented(409, 503)) == {409, 503}
