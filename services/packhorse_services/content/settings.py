"""What the content service takes from the environment."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.topology.configuration import DatabaseConfiguration


class Settings(DatabaseConfiguration, BaseSettings):
    """Settings of `packhorse-content`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")
    needed = ("blobs_url",)

    port: int = Field(default=8081, ge=0, le=65535)
    max_blob_bytes: int = Field(default=5 * 1024**3, gt=0)
    """The largest binary that is taken over HTTP."""
