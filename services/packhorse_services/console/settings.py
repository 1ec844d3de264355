"""Settings of a console, from its environment."""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.client.addresses import checked_url
from packhorse.client.errors import Misused
from packhorse.runtime.configuration import ProcessConfiguration

PREFIX = "/pages"
"""The path of all pages at the console's address."""


class Settings(ProcessConfiguration, BaseSettings):
    """Settings of `packhorse-console`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")

    port: int = Field(default=8091, ge=0, le=65535)
    publisher_urls: dict[str, str] = Field(min_length=1, max_length=100)
    """The publisher agents' names, and where the console reaches the publisher of each."""
    content_url: str = ""
    subscriber_urls: dict[str, str] = Field(default={}, max_length=1_000)
    """The author's content service and subscribers by name, for what they hold; empty: not shown.

    They get the visitor's token, so they are named here, not taken from what is announced.
    """
    cleanup_url: str = ""
    """Where the console reaches the cleanup service, which shows what the journal holds."""
    jobs_urls: dict[str, str] = Field(default={}, max_length=100)
    topology_urls: dict[str, str] = Field(default={}, max_length=100)
    """The services that tell of jobs and of the topology, by names to show; empty: no such page."""
    pipeline_url: str = ""
    """The service of the pipeline's reports; empty: none are shown."""
    upstream_timeout_s: float = Field(default=10.0, gt=0)
    """How long one answer of another service may take."""
    console_url: str = ""
    """Where a browser reaches the console; an identity provider leads back there."""
    oidc_client_id: str = ""
    """The console's name at an identity provider, the JWTs' issuer; empty: tokens only."""
    oidc_client_secret: SecretStr = SecretStr("")
    oidc_client_secret_file: Path | None = None
    oidc_scopes: str = "openid"
    """What is asked of it, with blanks."""
    oidc_parameters: dict[str, str] = Field(default={}, max_length=20)
    """Further parameters, such as the `resource` or the `audience` that access tokens are for."""
    session_idle_s: float = Field(default=3_600.0, gt=0)
    """How long a session lasts in which no page is opened and no button pressed."""
    session_longest_s: float = Field(default=43_200.0, gt=0)
    """How long a session lasts at most."""

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers come by https, whatever a proxy makes of it."""
        return self.console_url.startswith("https://")

    @field_validator("publisher_urls", "subscriber_urls", "jobs_urls", "topology_urls")
    @classmethod
    def _are_addresses(cls, urls: dict[str, str]) -> dict[str, str]:
        return {name: _address(url) for name, url in urls.items()}

    @field_validator("content_url", "cleanup_url", "console_url", "pipeline_url")
    @classmethod
    def _is_address_or_empty(cls, url: str) -> str:
        return _address(url) if url else url

    @model_validator(mode="after")
    def _names_the_provider(self) -> Self:
        if self.oidc_client_id and not (self.jwks_url and self.console_url):
            raise ValueError("oidc_client_id needs jwks_url and console_url as well")
        return self


def _address(url: str) -> str:
    try:
        return checked_url(url)
    except Misused as error:
        raise ValueError(str(error)) from None
