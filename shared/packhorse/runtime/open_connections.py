"""The open connections of a process by address, and which of them is closed when there are many."""

import ipaddress
from collections import Counter
from functools import lru_cache
from typing import Protocol

MAX_CONNECTIONS = 900
SPARE = 20
"""Connections above those: a probe can be among them, everything else is refused there."""


class Closable(Protocol):
    """A connection."""

    def close_silent(self) -> None:
        """Close it: no request of it is under way."""
        ...


class OpenConnections:
    """Makes room for a new connection by closing the one that has been silent for longest.

    It is one of the address that has the most silent ones, or of the new one's address when that
    has its share already.
    """

    def __init__(self, most: int = MAX_CONNECTIONS) -> None:
        self._most, self._each = most, most * 2 // 3
        self._addresses: dict[Closable, str] = {}
        self._counts: Counter[str] = Counter()
        self._silent: dict[str, dict[Closable, None]] = {}

    def opened(self, connection: Closable, host: str) -> bool:
        """Take a connection; False when there is no room even for probes."""
        address = network_of(host)
        if self._counts[address] >= self._each:
            self._make_room(address)
        elif len(self._addresses) >= self._most:
            self._make_room(max(self._silent, key=lambda one: len(self._silent[one]), default=""))
        if len(self._addresses) >= self._most + SPARE:
            return False
        self._addresses[connection] = address
        self._counts[address] += 1
        self.silent(connection)
        return True

    def silent(self, connection: Closable) -> None:
        """Note that no request of the connection is under way."""
        address = self._addresses.get(connection)
        if address is not None:
            self._silent.setdefault(address, {})[connection] = None

    def speaking(self, connection: Closable) -> bool:
        """Note that a request is under way; return whether only a probe may be."""
        address = self._addresses.get(connection, "")
        self._not_silent(connection, address)
        return self._counts[address] > self._each or len(self._addresses) > self._most

    def closed(self, connection: Closable) -> None:
        """Forget a connection; twice is no error."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        self._not_silent(connection, address)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _make_room(self, address: str) -> None:
        oldest = next(iter(self._silent.get(address, ())), None)
        if oldest is not None:
            self.closed(oldest)
            oldest.close_silent()

    def _not_silent(self, connection: Closable, address: str) -> None:
        there = self._silent.get(address)
        if there is not None:
            there.pop(connection, None)
            if not there:
                del self._silent[address]


@lru_cache(maxsize=4096)
def network_of(host: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits, which one client has.

    A client that comes by IPv4 to a socket for both is known by its IPv4 address.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))
