"""How the connectors of one instance work."""

from dataclasses import dataclass, field
from functools import cached_property

import httpx

from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.topology.announcement_schema import MAX_BACKOFF_S
from packhorse.topology.connector_keys import KEY_TTL_S, SharedKeys

LOCAL_ONLY = ("localhost", "127.0.0.1", "::1")
DEFAULT_PATH = "/topology/connectors"


@dataclass(frozen=True)
class ConnectorSettings:
    """Intervals, factor and keys must be the same in all clusters of a topology.

    Raises `InvalidConfiguration` naming what can't work.
    """

    urls: tuple[str, ...] = ()
    """Where to connect to. Several of one cluster are fallbacks: the first that answers counts."""
    shared_keys: tuple[str, ...] = field(default=(), repr=False)
    """The first signs, all are accepted; none: nothing is signed."""
    key_ttl_s: float = KEY_TTL_S
    encryption: bool = False
    allow: tuple[str, ...] | None = None
    """Addresses that may connect; None: this machine, or with a shared key everybody who has it."""
    public_url: str = ""
    """What peers have to put into their `urls` where a proxy passes on another host or path."""
    interval_s: float = 15.0
    timeout_s: float = 60.0
    """How long an announcement holds that was to be renewed after `interval_s`."""
    backoff_factor: float = 5.0
    """How many times longer the interval gets while nothing changes; 1: never."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0
    gzip: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.interval_s < self.timeout_s:
            raise InvalidConfiguration(
                "the connectors' interval must be shorter than their time-out"
            )
        if not self.backoff_factor >= 1 or self.longest_interval_s > MAX_BACKOFF_S:
            raise InvalidConfiguration(
                f"the connectors' interval times their back-off factor, which is at least 1, "
                f"may be {MAX_BACKOFF_S:g} s at most"
            )
        if self.encryption and not self.shared_keys:
            raise InvalidConfiguration("encryption of connectors needs a shared key")
        for url in (*self.urls, *([self.public_url] if self.public_url else [])):
            base_url(url)
        if self.shared_keys:
            _ = self.keys

    @property
    def longest_interval_s(self) -> float:
        """The interval with all of the back-off."""
        return self.interval_s * self.backoff_factor

    @cached_property
    def keys(self) -> SharedKeys | None:
        """What signs; None without a shared key."""
        if not self.shared_keys:
            return None
        try:
            return SharedKeys(self.shared_keys, self.key_ttl_s)
        except ValueError as error:
            raise InvalidConfiguration(str(error)) from None

    @property
    def allowed(self) -> tuple[str, ...]:
        """The entries of the allow list."""
        if self.allow is not None:
            return self.allow
        return ("*",) if self.shared_keys else LOCAL_ONLY


def base_url(text: str) -> httpx.URL:
    """Return a connector's URL, with the usual path if it has none. `InvalidConfiguration`."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidConfiguration(f"the URL of a connector can't be read: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise InvalidConfiguration(
            f"{shown(url)} is no URL of a connector: http or https, a host, and at most a path"
        )
    return url.copy_with(path=url.path.rstrip("/") or DEFAULT_PATH)


def shown(url: httpx.URL) -> str:
    """Return a URL without user and password."""
    return str(url.copy_with(username=None, password=None))
