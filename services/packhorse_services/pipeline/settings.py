"""What the pipeline takes from the environment; what one task needs comes as its options."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.topology.configuration import DatabaseConfiguration
from packhorse_services.pipeline.errors import TaskRefused

_MISSING = {
    "blobs_url": "there is no blob store; set PACKHORSE_BLOBS_URL to the author's",
    "database_url": "there is no author's database; set PACKHORSE_DATABASE_URL",
    "journal_url": "there is no journal; set PACKHORSE_JOURNAL_URL to the publishers'",
    "subscriber_databases": "there is no subscriber; set PACKHORSE_SUBSCRIBER_DATABASES",
}


class Settings(ProcessConfiguration, BaseSettings):
    """Settings of `packhorse-pipeline`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8084, ge=0, le=65535)
    tables_url: str = Field(default="", repr=False)
    """A folder, or `s3://bucket/prefix?endpoint=…&region=…&allow_http=true`."""
    tables_url_file: Path | None = None
    database_url: SecretStr | None = None
    """The author's database."""
    database_url_file: Path | None = None
    subscriber_databases: Annotated[dict[str, SecretStr], NoDecode] = Field(default_factory=dict)
    """A JSON object: the subscribers' names and their databases' URLs."""
    subscriber_databases_file: Path | None = None
    publisher_url: str = ""
    publisher_token: SecretStr | None = None
    publisher_token_file: Path | None = None

    spark_master: str = "local[*]"
    spark_memory: str = Field(default="1g", pattern=r"^[0-9]+[mg]$")
    """The driver's heap; on one machine also that of the executors."""
    spark_conf: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    """A JSON object of further Spark settings, which win over those of the product."""
    spark_jars: Path | None = None
    """The folder of the jars; without it, one in the user's cache."""
    ivy_settings: Path | None = None
    """Where jars are fetched from, as an Ivy settings file; without it, the public repository."""

    @property
    def author_url(self) -> str:
        """The URL of the author's database; empty when it is not set."""
        return "" if self.database_url is None else self.database_url.get_secret_value()

    @property
    def publisher_bearer(self) -> str | None:
        """The token for the publisher; None without one, and for an empty one."""
        token = self.publisher_token
        return token.get_secret_value() or None if token else None

    def require(self, *names: str) -> None:
        """Raise `TaskRefused` for the first of these settings that is not set."""
        for name in names:
            if not getattr(self, name):
                raise TaskRefused(_MISSING[name])

    @field_validator("subscriber_databases", "spark_conf", mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "{}")
        except ValueError as error:
            raise ValueError('not a JSON object such as {"name": "value"}') from error


class PipelineWorkerSettings(DatabaseConfiguration, BaseSettings):
    """What a worker takes besides: the tasks that it runs read `Settings` themselves."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    tables_url: str = Field(default="", repr=False)
    tables_url_file: Path | None = None
