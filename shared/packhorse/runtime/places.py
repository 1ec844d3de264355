"""Shares: how much of something is taken, in all and by whom, so that nobody takes it all (R33)."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.types import Scope

from packhorse.runtime.limits import ServiceLimits
from packhorse.runtime.open_connections import network_of
from packhorse.runtime.principal import CALLER
from packhorse.runtime.problems import Problem

SURPLUS = "packhorse.surplus"
"""Key of a request in the ASGI scope whose connection is one too many: it has to be a probe."""

_SHARES = "packhorse.shares"
_PLACE = "packhorse.place"

Who = str
"""The name of a caller that is known, else its address."""


def who(scope: Scope) -> Who:
    """Return who is accountable for a request."""
    caller = scope.get(CALLER)
    if caller is not None:
        return f"caller {caller.name}"
    client = scope.get("client")
    return f"address {network_of(client[0])}" if client else "address unknown"


class Places:
    """Counts what is taken of something of which there are `most`; one may take `each` of them."""

    def __init__(self, what: str, most: int, each: int) -> None:
        self._what, self._most, self._each = what, most, max(1, each)
        self._taken: Counter[Who] = Counter()
        self._total = 0

    def take(self, by: Who, amount: int = 1) -> None:
        """Take some. Raises `Problem` 429 for who has too many, 503 when there are too many."""
        if self._taken[by] + amount > self._each:
            self.give_back(by, 0)
            detail = f"{by} has as many {self._what} as one may have; try again"
            raise Problem(429, detail=detail)
        if self._total + amount > self._most:
            self.give_back(by, 0)
            detail = f"there are as many {self._what} as this service takes; try again"
            raise Problem(503, detail=detail)
        self._taken[by] += amount
        self._total += amount

    def give_back(self, by: Who, amount: int = 1) -> None:
        """Give back what was taken."""
        self._total -= amount
        self._taken[by] -= amount
        if not self._taken[by]:
            del self._taken[by]

    @contextmanager
    def taken(self, by: Who, amount: int = 1) -> Iterator[None]:
        """Hold some inside the block. Raises as `take`."""
        self.take(by, amount)
        try:
            yield
        finally:
            self.give_back(by, amount)


class RequestPlace:
    """One request's place among those that are worked on."""

    def __init__(self, places: Places, by: Who) -> None:
        self._places = places
        self._by: Who | None = None
        self._take(by)

    def hand_to(self, by: Who) -> None:
        """Let it count as another one's: now it is known who calls. Raises `Problem` 429."""
        if self._by is not None and self._by != by:
            self.leave()
            self._take(by)

    def leave(self) -> None:
        """Give it back; the request is not worked on any more, or only waits."""
        if self._by is not None:
            self._places.give_back(self._by)
            self._by = None

    def _take(self, by: Who) -> None:
        self._places.take(by)
        self._by = by


@dataclass(slots=True)
class Shares:
    """What the requests of a service share."""

    limits: ServiceLimits
    requests: Places = field(init=False)
    bodies: Places = field(init=False)
    held: Places = field(init=False)
    waits: Places = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self.requests = Places("requests under way", limits.in_flight, limits.in_flight // 2)
        self.bodies = Places("bodies under way", limits.in_flight // 2, limits.in_flight // 4)
        self.held = Places("bytes of bodies", limits.held_bytes, limits.held_bytes // 2)
        self.waits = Places("waiting requests", limits.waits, limits.waits // 4)


def enter(scope: Scope, shares: Shares) -> RequestPlace:
    """Give a request its place. Raises `Problem` 503."""
    scope[_SHARES] = shares
    place = RequestPlace(shares.requests, who(scope))
    scope[_PLACE] = place
    return place


def shares_of(scope: Scope) -> Shares:
    """Return what a request shares with others."""
    shares: Shares = scope[_SHARES]
    return shares


def known(scope: Scope) -> None:
    """Let a request count as its caller's, who is known now. Raises `Problem` 429."""
    place: RequestPlace | None = scope.get(_PLACE)
    if place is not None:
        place.hand_to(who(scope))


def leave(scope: Scope) -> None:
    """Let a request that only waits, or follows something, take no place from others."""
    place: RequestPlace | None = scope.get(_PLACE)
    if place is not None:
        place.leave()
