"""Settings of a jobs service, from its environment."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from packhorse.topology.configuration import DatabaseConfiguration
from packhorse_services.jobs.hooks.hook import MOST_HOOKS, Hook, HookName


class Settings(DatabaseConfiguration, BaseSettings):
    """Settings of `packhorse-jobs`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8088, ge=0, le=65535)
    event_streams: int = Field(default=64, ge=1, le=10_000)
    """How many clients may follow the events at a time."""
    hooks: Annotated[dict[HookName, Hook], NoDecode] = Field(
        default_factory=dict, repr=False, max_length=MOST_HOOKS
    )
    """A JSON object: names, and whom to tell of which changes of content."""
    hooks_file: Path | None = None

    @field_validator("hooks", mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "{}")
        except ValueError:
            raise ValueError('not a JSON object such as {"cdn": {"url": "https://…"}}') from None
