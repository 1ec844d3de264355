"""How the connectors of one instance work."""

from functools import cached_property
from pathlib import Path
from typing import Self

import httpx
from pydantic import Field, SecretStr, model_validator

from packhorse.runtime.configuration import InvalidConfiguration, ProcessConfiguration
from packhorse.topology.announcement_schema import MAX_BACKOFF_S
from packhorse.topology.connector_keys import KEY_TTL_S, SharedKeys

DEFAULT_PATH = "/topology/connectors"


class ConnectorConfiguration(ProcessConfiguration):
    """To be mixed into a service's settings.

    Intervals, factor and keys must be the same in all clusters of a topology.
    """

    connector_urls: str = Field(default="", repr=False)
    """URLs of other clusters' topology services, with commas between; several of one cluster are
    fallbacks: the first that answers counts."""
    connector_shared_key: SecretStr | None = None
    """The same secret of at least 32 bytes in all clusters; without it nothing is signed."""
    connector_shared_key_file: Path | None = None
    connector_other_key: SecretStr | None = None
    """Accepted too: the next key, or the last one, while the shared key is replaced."""
    connector_other_key_file: Path | None = None
    connector_key_ttl_s: float = Field(default=KEY_TTL_S, ge=60)
    connector_encryption: bool = False
    connector_allow: str | None = None
    """Names, addresses, wildcards and networks that may connect, with commas between; by default
    nobody, or with a shared key everybody who has it."""
    connector_public_url: str = ""
    """What peers have to put into their URLs where a proxy passes on another host or path."""
    connector_interval_s: float = Field(default=15.0, gt=0)
    connector_timeout_s: float = Field(default=60.0, gt=0)
    """How long an announcement holds that was to be renewed after the interval."""
    connector_backoff_factor: float = Field(default=5.0, ge=1)
    """How many times longer the interval gets while nothing changes; 1: never."""
    connector_connect_timeout_s: float = Field(default=10.0, gt=0)
    connector_read_timeout_s: float = Field(default=10.0, gt=0)
    connector_gzip: bool = True

    @property
    def connector_bases(self) -> list[httpx.URL]:
        """Where to connect to. Raises `InvalidConfiguration`."""
        return [base_url(url) for url in _listed(self.connector_urls)]

    @property
    def longest_connector_interval_s(self) -> float:
        """The interval with all of the back-off."""
        return self.connector_interval_s * self.connector_backoff_factor

    @cached_property
    def connector_keys(self) -> SharedKeys | None:
        """The shared key signs, both are accepted; None without it. Raises `ValueError`."""
        if self.connector_shared_key is None:
            return None
        both = (self.connector_shared_key, self.connector_other_key)
        secrets = [key.get_secret_value() for key in both if key is not None]
        return SharedKeys(secrets, self.connector_key_ttl_s)

    @property
    def allowed_connectors(self) -> tuple[str, ...]:
        """The entries of the allow list."""
        if self.connector_allow is not None:
            return _listed(self.connector_allow)
        return () if self.connector_keys is None else ("*",)

    @model_validator(mode="after")
    def _connectors_fit(self) -> Self:
        if self.connector_interval_s >= self.connector_timeout_s:
            raise ValueError("the connectors' interval must be shorter than their time-out")
        if self.longest_connector_interval_s > MAX_BACKOFF_S:
            raise ValueError(
                "the connectors' interval times their back-off factor may be "
                f"{MAX_BACKOFF_S:g} s at most"
            )
        if self.connector_other_key is not None and self.connector_shared_key is None:
            raise ValueError("connector_other_key is set without connector_shared_key")
        if self.connector_encryption and self.connector_keys is None:
            raise ValueError("encryption of connectors needs a shared key")
        try:
            _ = self.connector_keys, self.connector_bases
            if self.connector_public_url:
                base_url(self.connector_public_url)
        except InvalidConfiguration as error:
            raise ValueError(str(error)) from None
        return self


def _listed(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


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
