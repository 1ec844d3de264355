"""Settings that every program has; services add their own fields."""

import ipaddress
import os
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import from_json

from packhorse.errors import Permanent
from packhorse.runtime.principal import TokenScope
from packhorse.runtime.reasons import reason_of
from packhorse.runtime.setting_names import unknown_settings
from packhorse.wire.topics import Topics

_TOPIC_NAME = r"^[A-Za-z0-9._-]{0,200}$"


class InvalidConfiguration(Permanent):
    """The program can't start as configured; the text names the setting to change."""


class ProcessConfiguration(BaseModel):
    """Settings that all programs share.

    A field `x` with a twin `x_file` may come from that file instead, so that secrets need not
    stand in the environment; giving both is refused.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True, allow_inf_nan=False
    )

    needed: ClassVar[tuple[str, ...]] = ()
    """Which of those that may be left out this program can't start without."""
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    journal_url: str = Field(default="", repr=False)
    journal_url_file: Path | None = None
    blobs_url: str = Field(default="", repr=False)
    blobs_url_file: Path | None = None
    topic_prefix: str = Field(default="aemdistribution", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """What the names of topics begin with that have none of their own below."""
    topic_package: str = Field(default="", pattern=_TOPIC_NAME)
    topic_status: str = Field(default="", pattern=_TOPIC_NAME)
    topic_discovery: str = Field(default="", pattern=_TOPIC_NAME)
    topic_command: str = Field(default="", pattern=_TOPIC_NAME)
    topic_event: str = Field(default="", pattern=_TOPIC_NAME)
    authentication: bool = True
    token_file: Path | None = None
    jwks_url: str | None = None
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_name_claim: str = Field(default="sub", min_length=1, max_length=200)
    """The claim that callers are called by; one that they can't choose themselves."""
    jwt_scopes_claim: str = Field(default="scope", min_length=1, max_length=200)
    jwt_scopes: dict[str, frozenset[TokenScope]] = Field(default={}, max_length=1_000)
    """What words of that claim, such as groups, allow; empty: they are scopes themselves."""
    allowed_hosts: str = Field(default="", max_length=10_000)
    """Names by which clients may call it, with commas; without any: all, but this machine's alone
    where authentication is off."""
    max_connections: int = Field(default=900, ge=10, le=100_000)
    max_requests: int = Field(default=500, ge=4, le=100_000)
    max_waits: int = Field(default=200, ge=4, le=100_000)
    min_body_rate: int = Field(default=64 * 1024, ge=1)
    """Bytes a second that a request's body has to keep up, once 20 s have passed."""
    docs: bool = False
    """Serve the interactive API pages at /docs, which load their scripts from elsewhere."""
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @property
    def topics(self) -> Topics:
        """The names of the topics, which all programs of an installation share."""
        names = {part: str(getattr(self, f"topic_{part}")) for part in Topics().by_part()}
        return Topics.named(self.topic_prefix, names)

    @model_validator(mode="before")
    @classmethod
    def _read_files(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        filled = dict(values)
        for name in cls.model_fields:
            source = values.get(f"{name}_file")
            if source is None:
                continue
            if values.get(name) is not None:
                raise ValueError(f"{name} and {name}_file are both set; leave one out")
            filled[name] = setting_in(Path(source))
        return filled

    @field_validator("jwt_scopes", mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        return from_json(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        _ = self.topics
        if self.jwks_url and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError("jwks_url needs jwt_issuer and jwt_audience as well")
        if not self.authentication and not is_loopback(self.host):
            raise ValueError(
                f"authentication is off and host {self.host} is not loopback, so anybody on the "
                "network could write; turn authentication on or listen on 127.0.0.1"
            )
        return self


def setting_in(source: Path) -> str:
    """Return the setting that a file holds. Raises `ValueError` for one that can't be read."""
    try:
        return source.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{source} can't be read: {error}") from error


SettingsT = TypeVar("SettingsT", bound=ProcessConfiguration)


def loaded(kind: type[SettingsT]) -> SettingsT:
    """Return a service's settings. Raises `InvalidConfiguration` naming every one that is wrong.

    A variable that no program of packhorse knows is wrong, too.
    """
    misspelt = unknown_settings(os.environ)
    if misspelt:
        raise InvalidConfiguration("; ".join(misspelt))
    try:
        settings = kind()
    except ValidationError as error:
        wrong = "; ".join(
            f"{_variable(one['loc'])}: {reason_of(one['msg'])}"
            for one in error.errors(include_input=False)
        )
        raise InvalidConfiguration(wrong) from None  # pydantic's own text quotes what it got
    except ValueError as error:  # before it gets there; the text names the field
        raise InvalidConfiguration(f"{error}: it must be JSON") from None
    missing = [_variable((name,)) for name in kind.needed if not getattr(settings, name)]
    if missing:
        raise InvalidConfiguration("; ".join(f"{name}: this is missing" for name in missing))
    return settings


def _variable(location: tuple[str | int, ...]) -> str:
    if not location:
        return "the settings together"
    return f"PACKHORSE_{'_'.join(map(str, location)).upper()}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
