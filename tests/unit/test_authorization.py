"""Every operation of every service × {no token, wrong scope, other agent} is refused.

The table is made from the OpenAPI documents, so that a new operation is in it by itself.
"""

import itertools

import pytest
from starlette.routing import Route

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.principal import TokenScope
from tests.harness.openapi import SERVICES
from tests.harness.operations import OPERATIONS, Operation, app_of, send

_AGENT = "main"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: " ".join(one[:3]))
def test_nobody_gets_in_without_a_token(operation: Operation) -> None:
    answer = send(*operation[:3], token=None)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: " ".join(one[:3]))
def test_all_other_scopes_together_open_nothing(operation: Operation) -> None:
    service, method, path, needed = operation
    others = set(TokenScope) - {TokenScope.ADMIN, TokenScope(needed)}
    answer = send(service, method, path, ",".join(sorted(others)))
    assert answer.status_code == 403
    assert f'scope="{needed}"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS if one[0] == "publisher"],
    ids=lambda one: " ".join(one[:3]),
)
def test_a_token_for_another_agent_opens_nothing(operation: Operation) -> None:
    service, method, path, _ = operation
    answer = send(service, method, path, "admin/bulk,staging")
    assert answer.status_code == 403
    assert _AGENT in answer.json()["detail"]


@pytest.mark.parametrize("service", SERVICES)
def test_a_path_with_very_many_digits_is_no_fault_of_the_server(service: str) -> None:
    """Pages of the console, which no document names, too; Python makes no integer of so many."""
    answers = {
        f"{method} {route.path}": send(service, method, route.path, None, given="1" * 5000)
        for route in app_of(service).router.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    assert not [name for name, answer in answers.items() if answer.status_code == 500]


def test_a_number_that_nothing_can_have_is_refused() -> None:
    answer = send("jobs", "GET", "/jobs/{number}", "admin", given="1" * 5000)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "path/number")


def test_the_table_holds_every_service_and_every_scope_that_one_asks_for() -> None:
    assert {service for service, *_ in OPERATIONS} == set(SERVICES)
    requested = {scope for *_, scope in OPERATIONS}
    assert requested == set(TokenScope)


def test_the_table_would_notice_an_open_operation() -> None:
    """A checker that can't fail is none: an operation that asks for nothing is let in."""
    app = app_of("publisher")
    before = app.state.authenticator
    app.state.authenticator = Authenticator.off()
    try:
        opened = [
            send(*operation[:3], token=None).status_code
            for operation in itertools.islice(OPERATIONS, 1)
        ]
    finally:
        app.state.authenticator = before
    assert 401 not in opened
