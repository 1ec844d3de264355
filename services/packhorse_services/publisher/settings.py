"""Settings of a publisher, from its environment."""

import uuid

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from packhorse.packages.limits import LIMITS
from packhorse.topology.configuration import DatabaseConfiguration
from packhorse.wire.topics import PACKAGE_RETENTION_HOURS

LONGEST_KEPT_DAYS = 365
"""For how long an agent can be told to keep keys and unused producers, at most."""


class Settings(DatabaseConfiguration, BaseSettings):
    """Settings of one publisher process: `PACKHORSE_` and the field's name."""

    model_config = SettingsConfigDict(env_prefix="PACKHORSE_", frozen=True, extra="ignore")
    needed = ("journal_url", "blobs_url")

    port: int = Field(default=8080, ge=0, le=65535)
    agent: str = Field(default="main", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """The publisher agent; all replicas of one agent share a name."""
    instance: str = Field(default_factory=lambda: uuid.uuid4().hex, max_length=100)
    """Names this run in the packages that it publishes; `instance_id` outlives a restart."""
    outbox_packages: int = Field(default=1_000, ge=1, le=100_000)
    outbox_age_s: float = Field(default=30.0, gt=0)
    """How much may wait for a journal that is away, and how long, before requests are refused."""
    max_package_bytes: int = Field(default=LIMITS.content_bytes, ge=1024**2)
    """What one package may unpack to; the same at every subscriber, or less here."""
    idempotency_hours: float = Field(default=24.0, gt=0, le=LONGEST_KEPT_DAYS * 24)
    """How long an `Idempotency-Key` is remembered."""
    cache_bytes: int = Field(default=512 * 1024 * 1024, ge=1024 * 1024)
    queue_packages: int = Field(default=1_000_000, ge=1)
    queue_bytes: int = Field(default=64 * 1024**3, ge=1)
    """How much may wait for the slowest live subscriber before requests are refused (429)."""
    keep_packages_hours: float = Field(default=PACKAGE_RETENTION_HOURS, ge=1, le=87_600)
    """How long the journal must keep packages, at least; topics that are made keep them so long."""
    keep_failed_days: float = Field(default=30.0, gt=0, le=3_650)
    """How long an entry of an error queue is kept; the log may forget its package earlier."""
    producer_days: float = Field(default=30.0, gt=0, le=LONGEST_KEPT_DAYS)
    """How long a producer that publishes nothing is remembered."""
    producers: int = Field(default=10_000, ge=1)
    """How many producers are remembered; one caller may have a tenth of them."""
    orphan_grace_hours: float = Field(default=24.0, gt=0, le=87_600)
    """As the cleanup has it: a prepared body of half that age has to be exported again."""
    event_streams: int = Field(default=64, ge=1)
    """How many clients may follow `GET /events` at a time."""
