"""Settings of a topology service, from its environment."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.topology.configuration import DatabaseConfiguration
from packhorse_services.topology.connectors.options import ConnectorConfiguration


class Settings(DatabaseConfiguration, ConnectorConfiguration, BaseSettings):
    """Settings of `packhorse-topology`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8087, ge=0, le=65535)
    event_streams: int = Field(default=64, ge=1, le=10_000)
    """How many clients may follow the topology's events at a time."""
