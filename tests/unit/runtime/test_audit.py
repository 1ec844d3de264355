"""The audit log: what a request leaves in it, and what it never does."""

import asyncio
import json
import logging
from typing import Any

import pytest

from packhorse.runtime import audit, jwt_tokens, logs
from packhorse.runtime.audit import AuditOutcome, RefusalLimit
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.jwt_tokens import JwtVerifier
from packhorse.runtime.principal import Principal
from tests.harness.clock import ManualClock
from tests.unit.runtime.apps import call, sample_app

SECRET = "t0p-s3cret"


class Known:
    async def principal(self, token: str) -> Principal | None:
        return Principal(token, frozenset({"distribute"})) if token != SECRET else None


@pytest.fixture(autouse=True)
def _nothing_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_limit", RefusalLimit())


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    return [line for line in found if line["logger"] == audit.LOGGER]


def send(method: str, url: str, token: str = "", **options: Any) -> None:
    headers = {"Authorization": f"Bearer {token}", "X-Request-ID": "r1"} if token else {}
    call(sample_app(Authenticator(Known())), method, url, headers=headers, **options)


ORDER = {"action": "ADD", "paths": ["/a"]}


def test_a_change_says_who_from_where_what_on_what_and_how_it_ended(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json", "ERROR")  # the audit log is written whatever others are
    send("POST", "/orders", "ann", json=ORDER)
    [line] = lines(capfd)
    assert {name: line[name] for name in ("event", "caller", "address", "method", "operation")} == {
        "event": "audit",
        "caller": "ann",
        "address": "127.0.0.1",
        "method": "POST",
        "operation": "placeOrder",
    }
    assert (line["object"], line["outcome"], line["status"]) == ("/orders", "DONE", 202)
    assert line["request_id"] == "r1"
    assert "timestamp" in line


@pytest.mark.parametrize(
    ("method", "url", "token", "body", "outcome", "status", "reason"),
    [
        ("POST", "/orders", "", ORDER, "REFUSED", 401, "unauthenticated"),
        ("GET", "/orders", "", None, "REFUSED", 401, "unauthenticated"),
        ("GET", "/orders", "ann", None, "REFUSED", 403, "forbidden"),
        ("POST", "/orders", "ann", {"action": "NO"}, "REFUSED", 422, "invalid-request"),
        ("DELETE", "/nothing", "", None, "REFUSED", 404, "not-found"),
    ],
)
def test_a_refusal_says_why(
    capfd: pytest.CaptureFixture[str],
    method: str,
    url: str,
    token: str,
    body: Any,
    outcome: str,
    status: int,
    reason: str,
) -> None:
    logs.configure("json", "INFO")
    send(method, url, token, json=body)
    [line] = lines(capfd)
    reported = (line["outcome"], line["status"], line["reason"], line.get("caller", ""))
    assert reported == (outcome, status, reason, token)


def test_what_is_only_read_has_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "INFO")
    send("GET", "/livez")
    send("GET", "/errors/permanent")
    send("GET", "/nothing")
    assert lines(capfd) == []


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_secret_and_no_control_character_is_in_a_line(
    capfd: pytest.CaptureFixture[str], form: Any
) -> None:
    logs.configure(form, "INFO")
    forged = "%0A%7B%22event%22%3A%22forged%22%7D%1B%5B31m%E2%80%AE"
    send("PUT", f"/streams/{forged}?token={SECRET}", SECRET, content=SECRET.encode())
    send("POST", "/orders", SECRET, json={"action": SECRET, "paths": []})
    send("POST", "/orders", "an\x1b[31mn", json=ORDER)
    reported = capfd.readouterr().err
    assert SECRET not in reported
    assert len(reported.splitlines()) == 3
    assert all(one.isprintable() for one in reported.splitlines())


def test_a_flood_of_refusals_leaves_room_for_others_and_is_counted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(audit, "_limit", RefusalLimit(lambda: now[0]))
    logs.configure("json", "INFO")
    for number in range(500):
        audit.record("mallory", AuditOutcome.REFUSED, {"address": f"2001:db8::{number:x}"})
    assert len(lines(capfd)) == 20
    audit.record("ann", AuditOutcome.REFUSED, {"address": "10.0.0.7"})
    audit.record("mallory", AuditOutcome.DONE, {"address": "10.0.0.6"})
    refused, done = lines(capfd)
    assert (refused["caller"], refused["left_out_before"]) == ("ann", 480)
    assert done["outcome"] == "DONE", "no change is left out"
    for number in range(1_000):
        audit.record("", AuditOutcome.REFUSED, {"address": f"10.1.{number % 250}.{number // 250}"})
    assert len(lines(capfd)) == 300 - 21, "all together"
    now[0] = 61.0
    audit.record("mallory", AuditOutcome.REFUSED, {"address": "10.0.0.6"})
    [again] = lines(capfd)
    assert again["left_out_before"] == 1_000 - 279


def test_tokens_that_are_refused_fill_no_log_either(caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may send them; the line about the token is beside the one about the request."""
    now = ManualClock()
    verifier = JwtVerifier("http://localhost:1", issuer="i", audience="a", clock=now)

    def lines_of(tokens: int) -> list[logging.LogRecord]:
        caplog.clear()
        for _ in range(tokens):
            assert asyncio.run(verifier.claims("a.b.c")) is None
        return caplog.records

    with caplog.at_level("INFO", logger=jwt_tokens.__name__):
        assert len(lines_of(100)) == 20
        now.advance(60)
        [line] = lines_of(1)
        assert line.__dict__["left_out_before"] == 80
