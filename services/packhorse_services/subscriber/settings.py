"""What the subscriber takes from the environment."""

import json
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from packhorse.content.node import ROOT, InvalidPath, check_path
from packhorse.packages.limits import LIMITS
from packhorse.packages.path_filter import PathFilter
from packhorse.topology.configuration import DatabaseConfiguration
from packhorse_services.subscriber.announce.catching_up import ReadySettings, ReadyWhen
from packhorse_services.subscriber.importing.attempts import UNLIMITED
from packhorse_services.subscriber.journal.journal_check import StartPolicy

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

AgentName = Annotated[str, Field(pattern=_NAME)]


class Settings(DatabaseConfiguration, BaseSettings):
    """Settings of `packhorse-subscriber`: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")
    needed = ("journal_url", "blobs_url")

    port: int = Field(default=8083, ge=0, le=65535)
    subscriber: AgentName
    publisher_agents: Annotated[tuple[AgentName, ...], NoDecode, Field(min_length=1)] = ("main",)
    """A JSON list, or names with commas between them."""
    editable: bool = False
    max_retries: int = Field(default=UNLIMITED, ge=UNLIMITED)
    start: StartPolicy = StartPolicy.EARLIEST
    import_roots: Annotated[tuple[str, ...], NoDecode, Field(min_length=1)] = (ROOT,)
    include: Annotated[tuple[str, ...], NoDecode] = ()
    """Paths that it takes, with all below them; none: all. The nearest path at or above a node
    decides between these and `exclude` (R35)."""
    exclude: Annotated[tuple[str, ...], NoDecode] = ()
    """Paths that it leaves out, with all below them."""
    map_paths: Annotated[dict[str, str], NoDecode] = {}
    """Paths of the author and where they lie here, with all below them: the nearest one at or above
    a node. A JSON object, or `FROM=TO` with commas between them."""
    exclude_properties: Annotated[tuple[str, ...], NoDecode] = ()
    """Names of properties that it leaves out; a `*` at the end of one stands for any rest."""
    wait_for: AgentName | None = None
    """A subscriber that must have imported a package before this one does; it must be editable."""
    remember_packages_h: float = Field(default=0.0, ge=0, le=87_600)
    """How long ids of imported packages are kept, for a journal with repetitions; 0: not at all."""

    backoff_first_s: float = Field(default=5.0, gt=0)
    backoff_longest_s: float = Field(default=900.0, gt=0)
    lease_s: float = Field(default=10.0, ge=0.5)
    announce_s: float = Field(default=10.0, gt=0)
    max_package_bytes: int = Field(default=LIMITS.content_bytes, ge=1024**2)
    """What one package may unpack to; a larger one is a failed attempt (R14, R30)."""
    group_packages: int = Field(default=256, ge=1, le=10_000)
    group_bytes: int = Field(default=8 * 1024**2, ge=1)
    prefetch_packages: int = Field(default=2048, ge=1, le=100_000)
    prefetch_bytes: int = Field(default=16 * 1024**2, ge=1)
    idle_in_transaction_s: float = Field(default=30.0, gt=0)
    """How long a paused import may hold its locks where a takeover can't end its session."""

    ready_when: ReadyWhen = ReadyWhen.STARTED
    ready_idle_s: float = Field(default=10.0, ge=0)
    ready_latency_s: float = Field(default=0.0, ge=0)
    ready_force_s: float = Field(default=0.0, ge=0)

    @property
    def ready(self) -> ReadySettings:
        """When `/readyz` says that readers may come."""
        return ReadySettings(
            self.ready_when, self.ready_idle_s, self.ready_latency_s, self.ready_force_s
        )

    @property
    def path_filter(self) -> PathFilter:
        """What it takes, and where that lies; the order of its paths means nothing."""
        return PathFilter(
            tuple(sorted(self.include)),
            tuple(sorted(self.exclude)),
            tuple(sorted(self.map_paths.items())),
            tuple(sorted(self.exclude_properties)),
        )

    @field_validator(
        *("publisher_agents", "import_roots", "include", "exclude", "exclude_properties"),
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return json.loads(value)
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("map_paths", mode="before")
    @classmethod
    def _are_pairs(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("{"):
            return json.loads(value, object_pairs_hook=_once_each)
        pairs = [part.strip().split("=/") for part in value.split(",") if part.strip()]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("write FROM=TO with commas between them, or a JSON object")
        return _once_each([(source, f"/{target}") for source, target in pairs])

    @field_validator("wait_for")
    @classmethod
    def _waits_for_another(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and value == info.data.get("subscriber"):
            raise ValueError(f"{value} would wait for itself for ever; name another subscriber")
        return value

    @field_validator("publisher_agents")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("duplicate publisher agent; name each agent once")
        return value

    @field_validator("include", "exclude", "map_paths", "exclude_properties")
    @classmethod
    def _is_filter(cls, value: Any, info: ValidationInfo) -> Any:
        given = {**info.data, info.field_name or "": value}
        try:
            PathFilter(
                tuple(given.get("include", ())),
                tuple(given.get("exclude", ())),
                tuple(given.get("map_paths", {}).items()),
                tuple(given.get("exclude_properties", ())),
            )
        except InvalidPath as error:
            raise ValueError(str(error)) from error
        return value

    @field_validator("import_roots")
    @classmethod
    def _paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(check_path(path) for path in value)
        except InvalidPath as error:
            raise ValueError(str(error)) from error


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a path is mapped twice; leave out one of them")
    return dict(pairs)
