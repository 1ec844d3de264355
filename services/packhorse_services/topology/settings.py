"""Settings of a topology service, from its environment."""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.runtime.configuration import InvalidConfiguration, ProcessConfiguration
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.connector_keys import KEY_TTL_S
from packhorse_services.topology.connectors.options import ConnectorSettings


class ConnectorConfiguration(ProcessConfiguration):
    """To be mixed into a service's settings; `connectors` is what the fields come to."""

    connector_urls: str = Field(default="", repr=False)
    """URLs of other clusters' topology services, with commas between."""
    connector_shared_key: SecretStr | None = None
    """The same secret of at least 32 bytes in all clusters; without it nothing is signed."""
    connector_shared_key_file: Path | None = None
    connector_other_key: SecretStr | None = None
    """Accepted too: the next key, or the last one, while the shared key is replaced."""
    connector_other_key_file: Path | None = None
    connector_key_ttl_s: float = Field(default=KEY_TTL_S, ge=60)
    connector_encryption: bool = False
    connector_allow: str | None = None
    """Names, addresses, wildcards and networks that may connect, with commas between."""
    connector_public_url: str = ""
    connector_interval_s: float = Field(default=15.0, gt=0)
    connector_timeout_s: float = Field(default=60.0, gt=0)
    connector_backoff_factor: float = Field(default=5.0, ge=1)
    connector_connect_timeout_s: float = Field(default=10.0, gt=0)
    connector_read_timeout_s: float = Field(default=10.0, gt=0)
    connector_gzip: bool = True

    @property
    def connectors(self) -> ConnectorSettings:
        """How connectors work. Raises `InvalidConfiguration`."""
        keys = (self.connector_shared_key, self.connector_other_key)
        return ConnectorSettings(
            urls=_listed(self.connector_urls),
            shared_keys=tuple(key.get_secret_value() for key in keys if key is not None),
            key_ttl_s=self.connector_key_ttl_s,
            encryption=self.connector_encryption,
            allow=None if self.connector_allow is None else _listed(self.connector_allow),
            public_url=self.connector_public_url,
            interval_s=self.connector_interval_s,
            timeout_s=self.connector_timeout_s,
            backoff_factor=self.connector_backoff_factor,
            connect_timeout_s=self.connector_connect_timeout_s,
            read_timeout_s=self.connector_read_timeout_s,
            gzip=self.connector_gzip,
        )

    @model_validator(mode="after")
    def _connectors_fit(self) -> Self:
        if self.connector_shared_key is None and self.connector_other_key is not None:
            raise ValueError("connector_other_key is set without connector_shared_key")
        try:
            _ = self.connectors
        except InvalidConfiguration as error:
            raise ValueError(str(error)) from None
        return self


def _listed(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


class Settings(TopologyConfiguration, ConnectorConfiguration, BaseSettings):
    """Settings of `packhorse-topology`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8087, ge=0, le=65535)
    database_url: SecretStr
    """The database of the cluster that it is part of; the author's, or a subscriber's."""
    database_url_file: Path | None = None
    event_streams: int = Field(default=64, ge=1, le=10_000)
    """How many clients may follow the topology's events at a time."""
