"""Requests and answers about distributions, as HTTP shows them."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from packhorse.content.node import ROOT, InvalidPath, check_path
from packhorse.messaging.numbered import LARGEST
from packhorse.runtime.moments import moment_of
from packhorse.runtime.validation import StrictBody
from packhorse.wire.actions import is_probe, removes
from packhorse.wire.messages import Action
from packhorse_services.publisher.queues.schemas import RANGE_FROM, RANGE_TO, TARGETS

MAX_PATHS = 1_000
MAX_PATH_BYTES = 64 * 1024
_MORE = "send several requests, as packhorse distribute --from-file does"
PRODUCER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
MAX_SEQUENCE = LARGEST
"""Beyond it, some JSON readers round."""


def _valid_path(path: str) -> str:
    try:
        return check_path(path)
    except InvalidPath as error:
        raise ValueError(str(error)) from error


Path = Annotated[str, AfterValidator(_valid_path)]


def _moment_or_now(value: object) -> object:
    return value if value == "now" else moment_of(value)


MomentName = Annotated[datetime | Literal["now"], BeforeValidator(_moment_or_now)]
AT = (
    "When it goes out, by the database's clock: a date and time with a time zone (RFC 3339), or "
    '"now". What is past goes out at once'
)


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


TargetName = Annotated[str, Field(min_length=1, max_length=200)]
MAX_TARGETS = 100

ActionName = Annotated[Literal["ADD", "DELETE", "INVALIDATE", "TEST"], BeforeValidator(_upper)]
"""An action in either case of letters."""
QueuedActionName = Annotated[Literal["ADD", "DELETE", "INVALIDATE"], BeforeValidator(_upper)]
"""A TEST is in no queue."""


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


class DryRunBody(StrictBody):
    """What would be distributed."""

    action: ActionName = Field(description="TEST goes through the journal and changes nothing")
    paths: list[Path] = Field(
        default_factory=list, max_length=MAX_PATHS, description="Nodes, each without what is below"
    )
    deep_paths: list[Path] = Field(
        default_factory=list, max_length=MAX_PATHS, description="Nodes with all that is below"
    )

    targets: list[TargetName] = Field(
        default_factory=list, max_length=MAX_TARGETS, description=TARGETS
    )

    @model_validator(mode="after")
    def _check_amount(self) -> Self:
        paths = [*self.paths, *self.deep_paths]
        action = Action(self.action)
        if not paths and not is_probe(action):
            raise ValueError("name at least one path in paths or deep_paths")
        if len(paths) > MAX_PATHS:
            raise ValueError(f"{len(paths)} paths; {MAX_PATHS} are allowed together; {_MORE}")
        size = sum(len(path.encode()) for path in paths)
        if size > MAX_PATH_BYTES:
            raise ValueError(f"the paths have {size} bytes; {MAX_PATH_BYTES} are allowed; {_MORE}")
        if removes(action) and ROOT in paths:
            raise ValueError("the root can't be deleted; name what is below it")
        return self


class PublishBody(DryRunBody):
    """What to distribute now."""

    only_if_absent: bool = Field(
        default=False,
        description="Of a DELETE: refuse it (`path-present`) if the author has a path, or "
        "anything below it",
    )
    producer: ProducerNumber | None = Field(
        default=None, description="Instead of an Idempotency-Key, for sources that can replay"
    )

    @model_validator(mode="after")
    def _check_only_if_absent(self) -> Self:
        if self.only_if_absent and not removes(Action(self.action)):
            raise ValueError("only_if_absent is for DELETE")
        return self


class DistributeBody(PublishBody):
    """What to distribute, now or later."""

    at: MomentName | None = Field(
        default=None,
        description=f"{AT}. It is answered as SCHEDULED, and what the author has then goes out",
    )

    @model_validator(mode="after")
    def _check_at(self) -> Self:
        if self.at is not None and self.only_if_absent:
            raise ValueError("what goes out later has no only_if_absent; leave it out, or at")
        return self


UnsentStateName = Literal["DRAFT", "SCHEDULED", "FAILED", "CANCELLED"]
StateName = Literal["ACCEPTED", "QUEUED", "DISTRIBUTED", "PARTLY_DISTRIBUTED"]
STATE: Any = Field(
    description="ACCEPTED: committed, on its way to the journal. QUEUED: in the journal; a live "
    "subscriber has it still before it, or none is live. DISTRIBUTED: every subscriber that "
    "announced itself within a day has imported it. PARTLY_DISTRIBUTED: every live subscriber is "
    "done with it, but not every one has imported it: one removed it, gave it up, skipped it, "
    "began behind it, or is away. Of a package with targets only these count"
)
UNSENT: Any = Field(
    description=f"{STATE.description}. Of a release (`GET /releases`) that is not sent: DRAFT, "
    "SCHEDULED, FAILED, CANCELLED"
)


class Links(BaseModel):
    """Where to look next."""

    self: str
    queues: str = "/queues"


class DistributionAccepted(BaseModel):
    """The answer to a request: its package is committed and will be distributed."""

    id: str
    package_id: str = Field(description="Empty while it is SCHEDULED")
    state: StateName | UnsentStateName = UNSENT
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
    state: Literal[
        "QUEUED",
        "RETRYING",
        "IMPORTED",
        "REMOVED",
        "REMOVED_FAILED",
        "SKIPPED",
        "DUPLICATE",
    ]
    stale: bool = Field(description="No announcement for 30 s")
    attempts: int
    reason: str
    next_attempt_at: datetime | None
    since: datetime | None = Field(
        default=None,
        description="When it was REMOVED, REMOVED_FAILED, SKIPPED or DUPLICATE there; of RETRYING: "
        "since when it blocks. Null where no time is kept, as for IMPORTED",
    )
    imported_by: datetime | None = Field(
        default=None,
        description="Of IMPORTED: the moment of the first look that found it imported, so it was "
        "before. There is a look a minute, and one in ten counts from ten minutes after the "
        "package was accepted; they are kept for 25 hours. Else null",
    )


class _Distributed(BaseModel):
    id: str
    package_id: str
    offset: int | None
    action: str
    paths: list[str]
    deep_paths: list[str]
    range_from: str = Field(default="", description=RANGE_FROM)
    range_to: str = Field(default="", description=RANGE_TO)
    targets: list[str] = Field(default_factory=list, description=TARGETS)
    user: str
    size: int = Field(description="Bytes of the body as stored")


class DistributionSummary(_Distributed):
    """A distribution without its part at each subscriber."""

    state: StateName = STATE
    accepted_at: datetime
    links: Links


class DistributionDocument(_Distributed):
    """A distribution and what became of it."""

    state: StateName | UnsentStateName = UNSENT
    at: datetime | None = Field(default=None, description="The moment of a release")
    reason: str = Field(default="", description="Why a release FAILED, or is late")
    nodes: int
    accepted_at: datetime
    subscribers: list[DeliveryDocument]
    links: Links
