"""What the content service takes from the environment."""

from pathlib import Path

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.topology.configuration import TopologyConfiguration


class Settings(TopologyConfiguration, BaseSettings):
    """Settings of `packhorse-content`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8081, ge=0, le=65535)
    database_url: SecretStr
    database_url_file: Path | None = None
    max_blob_bytes: int = Field(default=5 * 1024**3, gt=0)
    """The largest binary that is taken over HTTP."""


def load() -> Settings:
    """Return the settings. Raises `InvalidConfiguration` naming every one that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        wrong = "; ".join(
            f"PACKHORSE_{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}"
            for one in error.errors()
        )
        raise InvalidConfiguration(wrong) from error
