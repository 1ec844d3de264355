"""The audit log: who did what, from where, on what, and what came of it, one line each.

Every request that changes something has a line, and every one that is refused for who sends it.
Lines go where all logs go, under the logger `packhorse.audit` (docs/operations/access.md).
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from threading import Lock
from typing import Any

from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import Scope

from packhorse.runtime.metrics import AUDIT_LEFT_OUT
from packhorse.runtime.open_connections import network_of
from packhorse.runtime.principal import Principal

LOGGER = "packhorse.audit"
logger = logging.getLogger(LOGGER)

_CALLER, _ABOUT, _PROBLEM, _UNAUDITED, _CHANGE = (
    f"packhorse.audit.{name}" for name in ("caller", "about", "problem", "unaudited", "change")
)
"""Keys of the ASGI scope."""
_PRESENT: ContextVar[Scope | None] = ContextVar("packhorse.audit.present", default=None)

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_UNWELCOME = frozenset({401, 403})
_LONGEST = 500
"""Characters of one member."""
_WINDOW_S = 60.0
_PER_CALLER, _TOGETHER = 20, 300
"""Lines of what was not done, in a window: of one caller at one address, and of all.

An IPv6 network of 64 bits counts as one address."""


class AuditOutcome(StrEnum):
    """What came of it."""

    DONE = "DONE"
    REFUSED = "REFUSED"
    """Nothing was changed; the status and the reason say why."""
    FAILED = "FAILED"
    """A fault of ours, or of a database: it may have been done or not (R26)."""
    UNANSWERED = "UNANSWERED"
    """The client went away before the answer: it may have been done or not."""


def operation_id(route: Route) -> str:
    """Return the function's name in camelCase: clients are generated from it."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def known(connection: HTTPConnection, caller: Principal) -> None:
    """Note who calls, also where that is not enough."""
    connection.scope[_CALLER] = caller.name


def note(connection: HTTPConnection, **about: str | float | bool | Sequence[int] | None) -> None:
    """Add what a request is about and its path does not say; never a secret."""
    connection.scope.setdefault(_ABOUT, {}).update(about)


def refused(scope: Scope, problem: str) -> None:
    """Note the problem that a request is answered with: the last part of its type."""
    scope[_PROBLEM] = problem


def change(connection: HTTPConnection) -> None:
    """Let a request have a line though its method only reads: it signs somebody in."""
    connection.scope[_CHANGE] = True


async def unaudited(connection: HTTPConnection) -> None:
    """Let what a route does have no line (a dependency): it is an exchange between programs."""
    connection.scope[_UNAUDITED] = True


def request_ended(scope: Scope, status: int, *, request_id: str, location: str = "") -> None:
    """Write the line of a request that was answered, where it has one; `status` 0: it was not."""
    changes = scope["method"] not in _READING or _CHANGE in scope
    if not changes and status not in _UNWELCOME:
        return
    outcome = outcome_of(status)
    if outcome is AuditOutcome.DONE and scope.get(_UNAUDITED):
        return
    reported = {
        "result": location,
        "status": status or None,
        "reason": scope.get(_PROBLEM, ""),
        "request_id": request_id,
        **_told(scope),
    }
    record(scope.get(_CALLER, ""), outcome, reported)


def present_act() -> tuple[str, dict[str, Any]] | None:
    """Return who sent the request that is being answered, and its members; None where none is.

    One that only reads is none. It is known in threads that the request waits for, too.
    """
    scope = _PRESENT.get()
    if scope is None or scope["method"] in _READING:
        return None
    members = {name: _plain(one) for name, one in _told(scope).items() if one not in ("", None)}
    return _plain(scope.get(_CALLER, "")), members


@contextmanager
def answering(scope: Scope) -> Iterator[None]:
    """Let a request be the present one until the block ends."""
    token = _PRESENT.set(scope)
    try:
        yield
    finally:
        _PRESENT.reset(token)


def _told(scope: Scope) -> dict[str, Any]:
    route, client = scope.get("route"), scope.get("client")
    return {
        "address": client[0] if client else "",
        "method": scope["method"],
        "operation": operation_id(route) if isinstance(route, Route) else "",
        "object": scope["path"],
        **scope.get(_ABOUT, {}),
    }


def record(caller: str, outcome: AuditOutcome, reported: Mapping[str, Any]) -> None:
    """Write a line; of what was not done only so many, the next one says how many it stands for."""
    members = {name: _plain(value) for name, value in reported.items() if value not in ("", None)}
    if outcome is not AuditOutcome.DONE:
        left_out = _limit.take(caller, network_of(str(reported.get("address", ""))))
        if left_out is None:
            AUDIT_LEFT_OUT.inc()
            return
        if left_out:
            members["left_out_before"] = left_out
    level = logging.INFO if outcome is AuditOutcome.DONE else logging.WARNING
    logger.log(level, "audit", extra={"caller": _plain(caller), "outcome": outcome, **members})


def outcome_of(status: int) -> AuditOutcome:
    """Return what the status of an answer says; 0 for none."""
    if not status:
        return AuditOutcome.UNANSWERED
    if status < 400:
        return AuditOutcome.DONE
    return AuditOutcome.REFUSED if status < 500 else AuditOutcome.FAILED


def _plain(value: Any) -> Any:
    """Return a text without what a terminal or a log's reader would take for its own."""
    if not isinstance(value, str):
        return value
    text = value[:_LONGEST]
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class RefusalLimit:
    """Counts lines by caller and address, so that a flood of refusals fills no disk.

    Who is flooding leaves room for the others, up to the number of lines in all.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._until = float("-inf")
        self._counts: Counter[tuple[str, str]] = Counter()
        self._left_out = 0

    def take(self, caller: str, address: str) -> int | None:
        """Take room for a line; return how many were left out before it, None for no room."""
        with self._lock:
            now = self._clock()
            if now >= self._until:
                self._until = now + _WINDOW_S
                self._counts.clear()
            if self._counts.total() >= _TOGETHER or self._counts[caller, address] >= _PER_CALLER:
                self._left_out += 1
                return None
            self._counts[caller, address] += 1
            before, self._left_out = self._left_out, 0
            return before


_limit = RefusalLimit()
