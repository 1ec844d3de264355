"""Requests and answers about distributions, as HTTP shows them."""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from packhorse.content.node import ROOT, InvalidPath, check_path
from packhorse.messaging.numbered import LARGEST
from packhorse.runtime.validation import StrictBody

MAX_PATHS = 1_000
MAX_PATH_BYTES = 64 * 1024
PRODUCER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
MAX_SEQUENCE = LARGEST
"""Beyond it, some JSON readers round."""
_LAST_MS = 253_402_300_799_000


def time_of(ms: int) -> datetime | None:
    """Return a time in UTC, or None for 0 and for what is no time."""
    return datetime.fromtimestamp(ms / 1000, UTC) if 0 < ms <= _LAST_MS else None


def _valid_path(path: str) -> str:
    try:
        return check_path(path)
    except InvalidPath as error:
        raise ValueError(str(error)) from error


Path = Annotated[str, AfterValidator(_valid_path)]


class ProducerNumber(StrictBody):
    """Which request of which replayable source it is, so that it is published once."""

    name: str = Field(pattern=PRODUCER_NAME)
    epoch: int = Field(ge=1, le=MAX_SEQUENCE, description="What registering the producer gave")
    sequence: int = Field(
        ge=0,
        le=MAX_SEQUENCE,
        description="Grows from request to request, with or without gaps; one that is not above "
        "the last is a duplicate",
    )


class DistributeBody(StrictBody):
    """What to distribute."""

    action: Literal["ADD", "DELETE", "INVALIDATE", "TEST"] = Field(
        description="TEST goes through the journal and changes nothing"
    )
    paths: list[Path] = Field(
        default_factory=list, max_length=MAX_PATHS, description="Nodes, each without what is below"
    )
    deep_paths: list[Path] = Field(
        default_factory=list, max_length=MAX_PATHS, description="Nodes with all that is below"
    )
    dry_run: bool = Field(default=False, description="Tell what it would be; publish nothing")
    producer: ProducerNumber | None = Field(
        default=None, description="Instead of an Idempotency-Key, for sources that can replay"
    )

    @model_validator(mode="after")
    def _check_amount(self) -> Self:
        paths = [*self.paths, *self.deep_paths]
        if not paths and self.action != "TEST":
            raise ValueError("name at least one path in paths or deep_paths")
        if len(paths) > MAX_PATHS:
            raise ValueError(f"{len(paths)} paths; {MAX_PATHS} are allowed together")
        size = sum(len(path.encode()) for path in paths)
        if size > MAX_PATH_BYTES:
            raise ValueError(f"the paths have {size} bytes; {MAX_PATH_BYTES} are allowed together")
        if self.action == "DELETE" and ROOT in paths:
            raise ValueError("the root can't be deleted; name what is below it")
        return self


RANGE_FROM = "Of a part of its deep path: it begins with this path; empty: with the deep path"
RANGE_TO = "Of a part of its deep path: it ends before this path; empty: with the subtree"


class Links(BaseModel):
    """Where to look next."""

    self: str
    queues: str = "/queues"


class DistributionAccepted(BaseModel):
    """The answer to a request: its package is committed and will be distributed."""

    id: str
    package_id: str
    state: Literal["ACCEPTED", "QUEUED", "DISTRIBUTED"] = Field(
        description="ACCEPTED: committed, on its way to the journal. QUEUED: in the journal. "
        "DISTRIBUTED: every live subscriber is done with it"
    )
    offset: int | None = Field(description="Where the journal has it; null while ACCEPTED")
    repeated: bool = Field(
        description="Whether an earlier request with this key or sequence made the package"
    )
    links: Links


class TargetSubscriber(BaseModel):
    """A subscriber that would get the package."""

    subscriber: str
    state: str
    length: int | None = Field(description="Packages before it; null when unknown")


class DryRunReport(BaseModel):
    """What a request would publish."""

    action: str
    nodes: int
    content_bytes: int
    body_bytes: int = Field(description="Compressed, as it would be stored")
    body: Literal["none", "inline", "reference"]
    subscribers: list[TargetSubscriber]


class DeliveryDocument(BaseModel):
    """One subscriber's part of a distribution."""

    subscriber: str
    state: Literal["QUEUED", "RETRYING", "IMPORTED", "REMOVED", "REMOVED_FAILED", "SKIPPED"]
    stale: bool = Field(description="No announcement for 30 s")
    attempts: int
    reason: str
    next_attempt_at: datetime | None


class _Distributed(BaseModel):
    id: str
    package_id: str
    state: Literal["ACCEPTED", "QUEUED", "DISTRIBUTED"]
    offset: int | None
    action: str
    paths: list[str]
    deep_paths: list[str]
    range_from: str = Field(default="", description=RANGE_FROM)
    range_to: str = Field(default="", description=RANGE_TO)
    user: str
    size: int = Field(description="Bytes of the body as stored")


class DistributionSummary(_Distributed):
    """A distribution without its part at each subscriber."""

    accepted_at: datetime
    links: Links


class DistributionDocument(_Distributed):
    """A distribution and what became of it."""

    nodes: int
    accepted_at: datetime
    subscribers: list[DeliveryDocument]
    links: Links
