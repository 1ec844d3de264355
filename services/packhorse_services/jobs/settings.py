"""Settings of a jobs service, from its environment."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.topology.configuration import TopologyConfiguration


class Settings(TopologyConfiguration, BaseSettings):
    """Settings of `packhorse-jobs`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8088, ge=0, le=65535)
    database_url: SecretStr
    """The database of the cluster that it is part of; the author's, or a subscriber's."""
    database_url_file: Path | None = None
    console_url: str = Field(default="", max_length=500, pattern=r"^(https?://\S+)?$")
    """Where a browser reaches the console, for the way back to it."""
    event_streams: int = Field(default=64, ge=1, le=10_000)
    """How many clients may follow the events at a time."""
