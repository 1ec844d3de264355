"""Who may connect, by address: names, wildcards and networks."""

import fnmatch
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from packhorse.clock import Clock, SystemClock

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ADDRESS_PATTERN = re.compile(r"[0-9.*?]*|[0-9a-f.*?]*:[0-9a-f.:*?]*")  # `*.bee.de` is a name
_KNOWN_S = 60.0
_MOST_KNOWN = 1_000

Found = TypeVar("Found")


class Names(Protocol):
    """The name service."""

    def addresses_of(self, name: str) -> frozenset[str]:
        """Return the addresses of a name; none for one that is not known."""
        ...

    def name_of(self, address: str) -> str:
        """Return the name that an address claims to have; "" for none."""
        ...


class SystemNames:
    """The machine's own resolver."""

    def addresses_of(self, name: str) -> frozenset[str]:
        """Ask for all of them."""
        try:
            return frozenset(str(one[4][0]) for one in socket.getaddrinfo(name, None))
        except (OSError, UnicodeError):
            return frozenset()

    def name_of(self, address: str) -> str:
        """Ask the other way round."""
        try:
            return socket.gethostbyaddr(address)[0]
        except (OSError, UnicodeError):
            return ""


class AllowList:
    """Entries are names, addresses, networks (also with a mask), or either with `*` and `?`.

    With those, what has a colon or no letter is for addresses, all else for names.
    A name is looked up, and what a peer's address claims to be called counts only if that name
    leads back to the address. Answers of the name service are remembered for a minute. `allows`
    may wait for it, and so is for a thread.
    """

    def __init__(
        self, entries: Sequence[str], names: Names | None = None, clock: Clock | None = None
    ) -> None:
        self._names, self._clock = names or SystemNames(), clock or SystemClock()
        self._anybody = "*" in entries
        self._networks: list[Network] = []
        self._address_patterns: list[str] = []
        self._name_patterns: list[str] = []
        self._plain_names: list[str] = []
        for entry in entries:
            self._sort_in(entry)
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, object]] = {}

    def _sort_in(self, entry: str) -> None:
        network, text = _network(entry), entry.lower()
        if network is not None:
            self._networks.append(network)
        elif "*" not in text and "?" not in text:
            self._plain_names.append(text)
        elif _ADDRESS_PATTERN.fullmatch(text):
            self._address_patterns.append(text)
        else:
            self._name_patterns.append(text)

    def allows(self, peer: str) -> bool:
        """Return whether a peer with this address may connect."""
        if self.has_address(peer):
            return True
        address = _address(peer)
        if address is None:
            return False
        if any(self._is_called(address, name) for name in self._plain_names):
            return True
        return self._is_called_like(address)

    def has_address(self, peer: str) -> bool:
        """Return whether it may by its address alone, which waits for nobody."""
        if self._anybody:
            return True
        address = _address(peer)
        if address is None:
            return False
        if any(address in network for network in self._networks):
            return True
        return _matches(str(address), self._address_patterns)

    def _is_called_like(self, address: Address) -> bool:
        if not self._name_patterns:
            return False
        text = str(address)
        name = self._remembered(("name", text), lambda: self._names.name_of(text)).lower()
        return _matches(name, self._name_patterns) and self._is_called(address, name)

    def _is_called(self, address: Address, name: str) -> bool:
        found = self._remembered(("addresses", name), lambda: self._names.addresses_of(name))
        return any(_address(one) == address for one in found)

    def _remembered(self, question: tuple[str, str], ask: Callable[[], Found]) -> Found:
        now = self._clock.monotonic()
        with self._lock:
            until, answer = self._known.get(question, (0.0, None))
        if now < until:
            return answer  # type: ignore[return-value]
        found = ask()
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[question] = (now + _KNOWN_S, found)
        return found


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network("/".join(entry.split()), strict=False)
    except ValueError:
        return None


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
