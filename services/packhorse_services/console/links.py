"""Tokens of links that sign a browser in once; they are nowhere but in memory."""

import hashlib
import secrets
from collections import OrderedDict

from packhorse.clock import Clock, SystemClock

_GOOD_S = 600.0
_EACH = 5
"""Links of one caller that are good at a time."""
_MOST = 1_000


class SignInLinks:
    """Tokens by the digests of their links' tickets; in memory, and each given out once."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._kept: OrderedDict[str, tuple[str, str, float]] = OrderedDict()

    def keep(self, token: str, by: str) -> str:
        """Return a ticket for a caller's token; the caller's own oldest ones are forgotten."""
        ticket = secrets.token_urlsafe(24)
        own = [digest for digest, kept in self._kept.items() if kept[1] == by]
        for digest in own[: 1 - _EACH]:
            del self._kept[digest]
        while len(self._kept) >= _MOST:
            self._kept.popitem(last=False)
        self._kept[_digest(ticket)] = (token, by, self._clock.monotonic() + _GOOD_S)
        return ticket

    def take(self, ticket: str) -> str:
        """Return the token of a ticket, and forget it; empty for one that is not good."""
        token, _by, until = self._kept.pop(_digest(ticket), ("", "", 0.0))
        return token if self._clock.monotonic() < until else ""


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "replace")).hexdigest()
