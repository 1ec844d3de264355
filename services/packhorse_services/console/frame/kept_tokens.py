"""Tokens by random keys: of sessions, and of links that sign in; they are nowhere but in memory.

A key is in a browser's cookie or in a link; here is its digest. See docs/adr/0093-sessions.md.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from packhorse.clock import Clock, SystemClock
from packhorse_services.console.provider import RenewedToken


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """How long a key is good at most and unused, in seconds; how many of one caller, and in all."""

    longest_s: float
    idle_s: float
    each: int
    most: int


@dataclass(slots=True)
class _Kept:
    token: str
    source: RenewedToken | None
    by: str
    ends_at: float
    idle_at: float


class KeptTokens:
    """Tokens by the digests of their keys; a caller's oldest ones make room for new ones."""

    def __init__(
        self,
        limits: TokenLimits,
        clock: Clock | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_end` is called when a key was forgotten by `forget`."""
        self._limits, self._clock, self._on_end = limits, clock or SystemClock(), on_end
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def keep(self, token: str, by: str, source: RenewedToken | None = None) -> str:
        """Return a new key for a caller's token; `source` says what it becomes."""
        now, limits = self._clock.monotonic(), self._limits
        self._make_room(by, now)
        key = secrets.token_urlsafe(32)
        kept = _Kept(token, source, by, now + limits.longest_s, now + limits.idle_s)
        self._kept[_digest(key)] = kept
        return key

    def token(self, key: str, *, used: bool = False) -> str:
        """Return the token of a key, empty for one that is not good; `used`: it was not idle."""
        kept, now = self._kept.get(_digest(key)), self._clock.monotonic()
        if kept is None or now >= min(kept.ends_at, kept.idle_at):
            return ""
        if used:
            kept.idle_at = now + self._limits.idle_s
        return kept.token

    async def renew(self, key: str) -> None:
        """Let the token of a key be what its source says now."""
        kept = self._kept.get(_digest(key))
        if kept is not None and kept.source is not None and self.token(key):
            kept.token = await kept.source.current()

    def take(self, key: str) -> str:
        """Return the token of a key, and forget the key; empty for one that is not good."""
        token = self.token(key)
        self.forget(key)
        return token

    def forget(self, key: str) -> RenewedToken | None:
        """Let a key be good no more, and return what its token came from."""
        kept = self._kept.pop(_digest(key), None)
        if kept is None:
            return None
        self._on_end()
        return kept.source

    def _make_room(self, by: str, now: float) -> None:
        over = [name for name, one in self._kept.items() if now >= min(one.ends_at, one.idle_at)]
        for digest in over:
            del self._kept[digest]
        own = [digest for digest, kept in self._kept.items() if kept.by == by]
        for digest in own[: max(0, len(own) - self._limits.each + 1)]:
            del self._kept[digest]
        while len(self._kept) >= self._limits.most:
            self._kept.popitem(last=False)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
