"""What the content service takes from the environment."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.topology.configuration import TopologyConfiguration


class Settings(TopologyConfiguration, BaseSettings):
    """Settings of `packhorse-content`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8081, ge=0, le=65535)
    database_url: SecretStr
    database_url_file: Path | None = None
    max_blob_bytes: int = Field(default=5 * 1024**3, gt=0)
    """The largest binary that is taken over HTTP."""
