"""What a cleanup service is told by its environment."""

from pathlib import Path

from croniter import croniter
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.topology.configuration import TopologyConfiguration
from packhorse_services.cleanup.schedule import Schedule


class Settings(TopologyConfiguration, BaseSettings):
    """Settings of `packhorse-cleanup`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8082, ge=0, le=65535)
    database_url: SecretStr
    """The author's database."""
    database_url_file: Path | None = None
    cleanup_hours: float = Field(default=12.0, gt=0)
    cleanup_cron: str = ""
    """A cron expression in UTC, instead of every `cleanup_hours`."""
    orphan_grace_hours: float = Field(default=24.0, gt=0)
    """How old a blob without a package must be before it goes."""
    retention_seconds: float = Field(default=60.0, gt=0)
    """How often the journal is told to forget what is too old."""

    @property
    def schedule(self) -> Schedule:
        """When it runs by itself."""
        return Schedule(self.cleanup_hours * 3600, self.cleanup_cron)

    @field_validator("cleanup_cron")
    @classmethod
    def _cron_is_one(cls, expression: str) -> str:
        if expression and not croniter.is_valid(expression):
            raise ValueError(f"{expression!r} is no cron expression, such as 0 */12 * * *")
        return expression
