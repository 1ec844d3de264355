"""What an operator says of a hook: whom it tells, of which content, and with which secrets."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, field_validator

from packhorse.content.node import ROOT, InvalidPath, check_path
from packhorse.content.schemas import TypeName
from packhorse.jobs.content_changes.watches import MOST_ROOTS, MOST_TYPES, ContentWatch
from packhorse.jobs.queue import QueueConfiguration, QueueType

_BEGINNING = "whsec_"
HookName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,50}$")]
MOST_HOOKS = 12
"""Of which each has four of an instance's 64 places: some are left for other jobs."""
_PARALLEL = 4
_LEAST_BYTES, _MOST_BYTES = 24, 64
_MOST_SECRETS = 4


class Hook(BaseModel):
    """Who is told, by POST to `url`. Neither the URL nor a secret is shown anywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: SecretStr
    secrets: tuple[SecretStr, ...] = Field(min_length=1, max_length=_MOST_SECRETS)
    """Each signs: with the old and the new one a receiver may change them at any time."""
    paths: tuple[str, ...] = Field(default=(ROOT,), min_length=1, max_length=MOST_ROOTS)
    types: tuple[TypeName, ...] = Field(default=(), max_length=MOST_TYPES)
    timeout_s: float = Field(default=10.0, gt=0, le=60)
    """From the connection to the answer's status; the system bounds the name's resolution."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: SecretStr) -> SecretStr:
        try:
            url = httpx.URL(value.get_secret_value())
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("not an absolute http or https URL")
        if url.userinfo:
            raise ValueError("has a user's name; the receiver knows us by the signature")
        return value

    @field_validator("secrets")
    @classmethod
    def _are_secrets(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for secret in value:
            key_of(secret)
        return value

    @field_validator("paths")
    @classmethod
    def _are_paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(map(check_path, value))
        except InvalidPath as error:
            raise ValueError(str(error)) from error

    @property
    def keys(self) -> Sequence[bytes]:
        """What the secrets stand for."""
        return [key_of(secret) for secret in self.secrets]


def key_of(secret: SecretStr) -> bytes:
    """Return the key that a secret stands for. Raises `ValueError`, without the secret."""
    text = secret.get_secret_value()
    try:
        key = base64.b64decode(text.removeprefix(_BEGINNING), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_BEGINNING) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise ValueError(
            f"a secret is {_BEGINNING} and {_LEAST_BYTES} to {_MOST_BYTES} bytes in base64"
        )
    return key


def topic_of(name: str) -> str:
    """Return the topic of a hook's jobs."""
    return f"packhorse/hooks/{name}"


def watch_of(name: str, hook: Hook) -> ContentWatch:
    """Return what gives the hook a job for each change, in the transaction of the change."""
    return ContentWatch(f"packhorse.hooks.{name}", hook.paths, topic_of(name), hook.types)


def queue_of(name: str) -> QueueConfiguration:
    """Return the queue of a hook, so that one that fails delays no other: about three days."""
    return QueueConfiguration(
        name=f"hooks.{name}",
        patterns=(topic_of(name),),
        type=QueueType.UNORDERED,
        max_parallel=_PARALLEL,
        max_retries=100,
    )
