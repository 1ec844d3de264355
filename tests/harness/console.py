"""The console on a real socket, over a publisher whose answers a test writes."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from html import unescape
from itertools import islice
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from httpx_sse import EventSource

from packhorse.runtime.auth import Authenticator, authenticator_for
from packhorse.runtime.principal import Principal
from packhorse_services.console import upstream
from packhorse_services.console.app import console
from packhorse_services.console.settings import Settings
from tests.harness.topology.scripted import Callers
from tests.harness.topology.served import Served
from tests.harness.written_publisher import AT, WrittenPublisher, entry, written_publisher

SCOPES = {"queues:read", "queues:clear", "subscribers:operate", "distribute", "content:read"} | {
    "jobs:operate"
}
OPERATOR = Principal("operator", frozenset(SCOPES))
REASON = 'NotNullViolation: null value in column "type" violates not-null constraint'
WHO_MAY_NOT = (
    ("viewer", "same-origin", 403),
    (None, "same-origin", 401),
    ("operator", "cross-site", 403),
    ("operator", "none", 403),
)
"""Token, `Sec-Fetch-Site` and the status of a form that operators may send from our pages."""
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}\"'"
"""What must come out as text, wherever it comes in."""


def queue(subscriber: str, state: str = "IDLE", length: int = 0, **more: Any) -> dict[str, Any]:
    """Return a queue as the publisher shows it in its list."""
    summary = {
        "subscriber": subscriber,
        "state": state,
        "reason": "",
        "length": length,
        "at_least": length,
        "at_most": length,
        "length_unknown": None,
        "offset": 40,
        "head": None,
        "lag_seconds": 240.0 if length else None,
        "errors": 0,
        "editable": True,
    }
    return {**summary, **more}


def blocked(subscriber: str, length: int = 2, **more: Any) -> dict[str, Any]:
    """Return a queue whose first package can't be imported."""
    head = {
        "offset": 41,
        "attempts": 4,
        "last_error": REASON,
        "next_attempt_at": AT,
        "blocked_since": AT,
    }
    return queue(subscriber, "BLOCKED", length, **{"reason": REASON, "head": head, **more})


def lags(**of: list[float | None]) -> dict[str, Any]:
    """Return how far behind subscribers were, as the publisher shows it."""
    queues = [{"subscriber": name, "lag_seconds": line, "rate": 3.5} for name, line in of.items()]
    return {"agent": "main", "since": AT, "step_seconds": 120, "queues": queues}


def history(subscriber: str, lag: list[float | None], **more: Any) -> dict[str, Any]:
    """Return how a queue was, as the publisher shows it."""
    figures = {"lag_seconds": lag, "length": [3] * len(lag), "rate": [2.5] * len(lag)}
    shown = {"agent": "main", "since": AT, "step_seconds": 60, "subscriber": subscriber}
    return {**shown, **figures, **more}


def clear_bound(up_to: int, packages: int, at_most: int | None = None) -> dict[str, int]:
    """Return what a clear would remove, as the publisher says it."""
    most = packages if at_most is None else at_most
    return {"up_to_offset": up_to, "packages": packages, "packages_at_most": most}


def command(kind: str = "CLEAR", state: str = "APPLIED", **more: Any) -> dict[str, Any]:
    """Return a command as the publisher shows it."""
    shown = {
        "command_id": f"c-{kind}-{state}",
        "kind": kind,
        "subscriber": "sub1",
        "state": state,
        "issued_by": "anna",
        "issued_at": AT,
        "ended_at": AT,
        "offset": None,
        "removed": None,
        "reason": "",
    }
    return {**shown, **more}


def failure(offset: int, reason: str = REASON, **more: Any) -> dict[str, Any]:
    """Return an entry of an error queue."""
    shown = {**entry(offset), "attempts": 3, "reason": reason, "redistributed_as": None}
    return {**shown, **more}


def distribution(number: str, **more: Any) -> dict[str, Any]:
    """Return a distribution as the publisher lists it."""
    shown = {**entry(41), "id": number, "state": "DISTRIBUTED", "accepted_at": AT, "nodes": 1}
    return {**shown, **more}


def dry_run(**more: Any) -> dict[str, Any]:
    """Return what the publisher says that a request would publish."""
    report = {"action": "ADD", "nodes": 12, "content_bytes": 30_000, "body_bytes": 4_096}
    return {**report, "body": "inline", "subscribers": [], **more}


def release(name: str, state: str = "SCHEDULED", **more: Any) -> dict[str, Any]:
    """Return a release as the publisher shows it."""
    shown = {
        "id": f"id-{name}",
        "name": name,
        "state": state,
        "at": "2026-12-24T18:00:00Z",
        "action": "ADD",
        "paths": [f"/site/{name}"],
        "deep_paths": [],
        "user": "anna",
        "package_id": "",
        "reason": "",
        "created_at": AT,
        "changed_at": AT,
    }
    return {**shown, **more}


def journal_record(offset: int, **more: Any) -> dict[str, Any]:
    """Return a record of the journal as the cleanup service shows it."""
    entry = {"package_id": f"p{offset}", "publisher_agent": "main", "paths": ["/site/news"]}
    shown = {
        "offset": offset,
        "time": AT,
        "key": None,
        "type": "PackageMessage",
        "size": 2_048,
        "message": {"entry": {**entry, "action": "ADD", "user": "anna"}, "metadata": {}},
        "nodes": None,
        "wrong": "",
    }
    return {**shown, **more}


@dataclass
class ConsoleSite:
    """The console with its callers, and the publisher that it asks."""

    url: str
    publisher: WrittenPublisher
    callers: Callers
    sessions: dict[str, str] = field(default_factory=dict)

    def cookie(self, token: str | None) -> dict[str, str]:
        """Return what a browser sends whose visitor has signed in; whoever can't sends a guess."""
        known = self.callers.known.get(token or "")
        if token is not None and token not in self.sessions:
            may = known is not None and known.may("queues:read")
            self.sessions[token] = self.signed_in(token) if may else "packhorse_overview=guessed"
        return {} if token is None else {"Cookie": self.sessions[token]}

    def signed_in(self, token: str, **headers: str) -> str:
        """Sign in, and return the cookie of the new session."""
        given = {"Sec-Fetch-Site": "same-origin", **headers}
        url, form = f"{self.url}/pages/sign-in", {"token": token}
        answer = httpx.post(url, data=form, headers=given, timeout=120, verify=False)
        assert answer.status_code == 303, answer.text
        return str(answer.headers["set-cookie"]).partition(";")[0]

    def get(self, path: str, token: str | None = "operator", **headers: str) -> httpx.Response:
        """Return a page as somebody sees it who has signed in."""
        url = f"{self.url}/pages/{path}"
        return httpx.get(url, headers={**self.cookie(token), **headers}, timeout=120, verify=False)

    def stream(self, path: str, count: int, token: str | None = "operator") -> list[Any]:
        """Return the first events of a stream that a page follows."""
        url = f"{self.url}/pages/{path}"
        with httpx.stream("GET", url, headers=self.cookie(token), timeout=120) as answer:
            assert answer.status_code == 200, answer.read()
            events = (one for one in EventSource(answer).iter_sse() if one.data)
            return list(islice(events, count))

    def post(
        self,
        path: str,
        /,
        token: str | None = "operator",
        sent_from: str = "same-origin",
        **form: str,
    ) -> httpx.Response:
        """Send a form as a browser does."""
        kind = "application/x-www-form-urlencoded"
        headers = {**self.cookie(token), "Content-Type": kind, "Sec-Fetch-Site": sent_from}
        url = f"{self.url}/pages/{path}"
        return httpx.post(url, content=urlencode(form), headers=headers, timeout=120, verify=False)

    def press(self, text: str, act: str, **typed: str) -> httpx.Response:
        """Send the form of a page whose address ends so, with what it hides; return what comes."""
        form = rf'<form method="post" action="/pages/([^"]*{re.escape(act)})">(.*?)</form>'
        [(path, fields)] = re.findall(form, text, re.DOTALL)
        assert all(one in fields for one in ("<button", *(f' name="{name}"' for name in typed)))
        hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', fields)
        sent = {name: unescape(value) for name, value in hidden}
        answer = self.post(unescape(path), **sent, **typed)
        if not answer.is_redirect:
            return answer
        return self.get(answer.headers["location"].removeprefix("/pages/"))


def row(text: str, mark: str) -> str:
    """Return the row of a page's table that has an attribute."""
    return _between(text, mark, "</tr>")


def section(text: str, label: str) -> str:
    """Return the section of a page that is called so."""
    return _between(text, f'<section aria-label="{label}"', "</section>")


def address(text: str, label: str) -> str:
    """Return where the link with this text leads, as `ConsoleSite.get` takes it."""
    [found] = re.findall(rf'<a [^>]*href="/pages/([^"]+)"[^>]*>{re.escape(label)}<', text)
    return unescape(found)


def _between(text: str, begin: str, end: str) -> str:
    _, found, behind = text.partition(begin)
    assert found, f"the page has no {begin}"
    return behind.partition(end)[0]


@contextmanager
def console_site(
    written: WrittenPublisher | None = None, *, lives_s: float = 120.0, **settings: Any
) -> Iterator[ConsoleSite]:
    """Serve it to the callers `viewer`, `operator` and `admin`, whose names are their tokens.

    With a `jwks_url`, to those whom its issuer knows instead. A service has `lives_s` to say that
    it lives.
    """
    callers = Callers()
    callers.known["operator"] = OPERATOR
    with nullcontext(written) if written else written_publisher() as publisher:
        listener = socket.create_server(("127.0.0.1", 0))
        own = {"console_url": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        given = {"publisher_urls": {"main": publisher.url}, "upstream_timeout_s": 120, **own}
        made = Settings.model_validate({**given, **settings})
        app = console(made, authenticator_for(made) if made.jwks_url else Authenticator(callers))
        program = SimpleNamespace(service=SimpleNamespace(app=app))
        served = Served(program, listener)  # type: ignore[arg-type]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(upstream, "_LIVES_S", lives_s)
            try:
                yield ConsoleSite(served.url, publisher, callers)
            finally:
                served.end()
