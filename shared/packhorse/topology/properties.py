"""The properties that an instance announces: who gives them, and what is too much."""

import logging
import os
import re
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from packhorse.errors import Permanent

logger = logging.getLogger(__name__)

ROLE = "packhorse.role"
"""publisher, subscriber, content, cleanup, jobs, topology, pipeline, or what an App is called."""
AGENT = "packhorse.agent"
"""The publisher or subscriber agent, for programs that have one."""
ENDPOINT = "packhorse.endpoint"
"""The URL under which others reach the instance."""
VERSION = "packhorse.version"
LEADER_TASKS = "packhorse.duties"
"""The leader-only work that the instance can do, with commas between."""
HOST = "packhorse.host"
"""The name of the machine."""
HOME = "packhorse.home"
"""The folder that the process runs in."""
PID = "packhorse.pid"
"""The number of the process on its machine."""
LEADER_PREFIX = "packhorse.leader-prefix"
"""Of those that could lead next, the one with the lowest does."""
DEFAULT_PREFIX = "1"
"""Of an instance that announces none."""
CONSUMERS = "packhorse.consumers"
"""The topics whose jobs the instance does: patterns with commas between."""

LONGEST_NAME = 200
LARGEST_VALUE = 4 * 1024
LARGEST_TOTAL = 64 * 1024
"""Bytes of UTF-8; the total is that of all names and values of one instance."""

MOST_PROPERTIES = 1_000
"""Of one instance; other clusters take no more."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_MOST_WARNINGS = 1_000


class InvalidProperty(Permanent):
    """A name or value that no instance may announce; the text says why."""


class PropertyProvider(Protocol):
    """Gives properties of the local instance; asked before each heartbeat, so it must be quick."""

    @property
    def ranking(self) -> int:
        """Of two providers that give one name, the one with the higher ranking wins."""
        ...

    def properties(self) -> Mapping[str, str | None]:
        """Return the values as they are now; None means that there is no such property."""
        ...


class FixedProperties:
    """A provider of values that stay."""

    def __init__(self, values: Mapping[str, str | None], ranking: int = 0) -> None:
        self.ranking = ranking
        self._values = dict(values)

    def properties(self) -> Mapping[str, str | None]:
        """Return them."""
        return self._values


class ProcessProperties:
    """Says where the process runs, for those who look for its logs; asked anew after a fork."""

    ranking = 0

    def properties(self) -> Mapping[str, str | None]:
        """Return host, home and pid. Raises `OSError` when its folder was removed."""
        return {HOST: socket.gethostname(), HOME: str(Path.cwd()), PID: str(os.getpid())}


def check_property(name: str, value: str) -> None:
    """Raise `InvalidProperty` unless an instance may announce this."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidProperty(
            f"a property's name has 1 to {LONGEST_NAME} letters, digits, '.', '_' or '-'"
        )
    if "\0" in value:
        raise InvalidProperty(f"the value of {name} contains U+0000")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidProperty(f"the value of {name} contains a lone surrogate") from None
    if size > LARGEST_VALUE:
        raise InvalidProperty(f"the value of {name} has {size} bytes, more than {LARGEST_VALUE}")


class LocalProperties:
    """All properties of the local instance; safe for threads.

    What `set` has been given wins over every provider. A name or value that may not be announced,
    and what no longer fits, is left out, with one warning.
    """

    def __init__(self, providers: Iterable[PropertyProvider] = ()) -> None:
        self._lock = threading.Lock()
        self._providers: Sequence[PropertyProvider] = sorted(
            providers, key=lambda provider: provider.ranking, reverse=True
        )
        self._set: dict[str, str] = {}
        self._last: dict[int, Mapping[str, str | None]] = {}
        self._warned: set[tuple[str, str]] = set()

    def set(self, name: str, value: str) -> None:
        """Announce it from the next heartbeat on. Raises `InvalidProperty`."""
        check_property(name, value)
        with self._lock:
            wanted = {**self._set, name: value}
            if len(wanted) > MOST_PROPERTIES:
                raise InvalidProperty(f"an instance has {MOST_PROPERTIES} properties at most")
            if sum(_size(*item) for item in wanted.items()) > LARGEST_TOTAL:
                raise InvalidProperty(
                    f"with {name} the properties would have more than {LARGEST_TOTAL} bytes"
                )
            self._set = wanted

    def was_set(self, name: str) -> bool:
        """Return whether `set` has given it, whatever providers give."""
        return name in self._set

    def remove(self, name: str) -> bool:
        """Take back what was `set`; false when it was not. A provider's own value comes back."""
        with self._lock:
            return self._set.pop(name, None) is not None

    def current(self) -> dict[str, str]:
        """Return what is to be announced now, sorted by name."""
        with self._lock:
            chosen = dict(self._set)
            left = LARGEST_TOTAL - sum(_size(*item) for item in chosen.items())
            for provider in self._providers:
                for name, value in sorted(self._requested(provider).items()):
                    if value is None or name in chosen or not self._is_valid(name, value, left):
                        continue
                    if len(chosen) >= MOST_PROPERTIES:
                        self._warn("", f"an instance has {MOST_PROPERTIES} properties at most")
                        break
                    chosen[name] = value
                    left -= _size(name, value)
            return dict(sorted(chosen.items()))

    def _requested(self, provider: PropertyProvider) -> Mapping[str, str | None]:
        """Ask; a provider that fails keeps what it gave last, so that nothing flickers."""
        try:
            self._last[id(provider)] = dict(provider.properties())
        except Exception as error:
            self._warn(type(provider).__name__, f"failed: {type(error).__name__}")
        return self._last.get(id(provider), {})

    def _is_valid(self, name: str, value: str, left: int) -> bool:
        try:
            check_property(name, value)
        except InvalidProperty as error:
            self._warn(name[:LONGEST_NAME], str(error))
            return False
        if _size(name, value) > left:
            self._warn(name, f"all properties have more than {LARGEST_TOTAL} bytes")
            return False
        return True

    def _warn(self, name: str, reason: str) -> None:
        if (name, reason) in self._warned or len(self._warned) >= _MOST_WARNINGS:
            return
        self._warned.add((name, reason))
        logger.warning("the property %r is left out: %s", name, reason)


def _size(name: str, value: str) -> int:
    return len(name) + len(value.encode())
