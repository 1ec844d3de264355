"""Settings of a cleanup service, from its environment."""

from datetime import timedelta

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.jobs.scheduling.errors import InvalidSchedule
from packhorse.jobs.scheduling.timing import Cron, Every, When, require_timing
from packhorse.topology.configuration import DatabaseConfiguration
from packhorse.wire.topics import PACKAGE_RETENTION_HOURS


class Settings(DatabaseConfiguration, BaseSettings):
    """Settings of `packhorse-cleanup`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")
    needed = ("journal_url", "blobs_url")

    port: int = Field(default=8082, ge=0, le=65535)
    cleanup_hours: float = Field(default=12.0, ge=1 / 3600, le=87_600)
    cleanup_cron: str = ""
    """A cron expression in UTC, instead of every `cleanup_hours`."""
    orphan_grace_hours: float = Field(default=24.0, gt=0, le=87_600)
    """How old a blob without a package must be before it goes."""
    keep_packages_hours: float = Field(default=PACKAGE_RETENTION_HOURS, ge=1, le=87_600)
    """How long the journal must keep packages, at least; topics that are made keep them so long."""
    retention_seconds: float = Field(default=60.0, gt=0)
    """How often the journal is asked to remove what is too old."""

    @property
    def when(self) -> When:
        """When it runs by itself, unless an operator has changed the schedule."""
        if self.cleanup_cron:
            return Cron(self.cleanup_cron)
        return Every(timedelta(hours=self.cleanup_hours))

    @field_validator("cleanup_cron")
    @classmethod
    def _cron_is_one(cls, expression: str) -> str:
        try:
            if expression:
                require_timing(Cron(expression))
        except InvalidSchedule as error:
            raise ValueError(str(error)) from None
        return expression
