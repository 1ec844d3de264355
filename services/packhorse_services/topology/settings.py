"""Settings of a topology service, from its environment."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.topology.configuration import TopologyConfiguration
from packhorse_services.topology.connectors.options import ConnectorConfiguration


class Settings(TopologyConfiguration, ConnectorConfiguration, BaseSettings):
    """Settings of `packhorse-topology`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8087, ge=0, le=65535)
    database_url: SecretStr
    """The database of the cluster that it is part of; the author's, or a subscriber's."""
    database_url_file: Path | None = None
    event_streams: int = Field(default=64, ge=1, le=10_000)
    """How many clients may follow the topology's events at a time."""
