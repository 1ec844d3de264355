"""What the stream sends: the shape of each event, and how records become events.

Records are untrusted (R30): one that is no message of ours is no event, and the stream goes on.
"""

import enum
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from packhorse.messaging.api import Record
from packhorse.runtime.moments import time_of
from packhorse.wire.codec import decode_distributed, decode_status
from packhorse.wire.messages import Action, PackageEntry
from packhorse.wire.package_codec import AGENT_HEADER, PACKAGE_ID_HEADER, decode_entry
from packhorse.wire.record import Undecodable

_MAX_TEXT = 2_000
_MAX_NAME = 200


class EventType(enum.StrEnum):
    """What `?types=` takes. A gap is sent whatever the types."""

    PACKAGE = "package"
    STATUS = "status"
    DISTRIBUTED = "distributed"
    SUBSCRIBER = "subscriber"


class PackageEvent(BaseModel):
    """A package entered the journal."""

    package_id: str
    offset: int
    action: str | None = Field(description="Null when the package's record can't be read")
    paths: list[str]
    deep_paths: list[str]
    user: str
    size: int = Field(description="Bytes of the body as stored")
    time: datetime | None = Field(description="When it entered the journal")


class StatusEvent(BaseModel):
    """A subscriber is done with a package; IMPORTED is reported by editable subscribers only.

    A repetition of one means nothing new (R9).
    """

    subscriber: str
    offset: int = Field(description="Of the package")
    package_id: str
    status: str = Field(description="IMPORTED, REMOVED, REMOVED_FAILED, SKIPPED, DUPLICATE")
    attempts: int
    reason: str
    time: datetime | None = Field(description="When the subscriber decided it")


class DistributedEvent(BaseModel):
    """Every live subscriber is done with a package, unless it is a TEST: a CloudEvent's data."""

    package_id: str
    publisher_agent: str
    offset: int
    paths: list[str]
    deep_paths: list[str]
    action: str
    state: str = Field(
        description="DISTRIBUTED: every subscriber of the last day that it is for has imported it. "
        "PARTLY_DISTRIBUTED: one is in another list than imported"
    )
    imported: list[str]
    removed: list[str]
    failed: list[str]
    skipped: list[str]
    away: list[str]
    time: datetime | None = Field(description="When it was sent")


class SubscriberEvent(BaseModel):
    """The state of a subscriber's queue as it is now; it has no position in a log."""

    subscriber: str
    state: str = Field(description="As in `GET /queues`, or FORGOTTEN after a day of silence")
    offset: int = Field(description="The last package that the subscriber is done with")
    attempts: int
    last_error: str


class GapEvent(BaseModel):
    """Events that the stream can't show: the log no longer has them (R2)."""

    source: Literal["package", "status", "distributed"]
    from_offset: int = Field(description="The first offset that was wanted")
    to_offset: int = Field(description="The offset where the stream goes on")
    reason: Literal["FORGOTTEN", "ANOTHER_LOG", "BEYOND_END"] = Field(
        description="The log has removed it; the topic was created anew; the log was cut at its "
        "end, so that offsets are used again"
    )


EVENTS: dict[str, type[BaseModel]] = {
    EventType.PACKAGE: PackageEvent,
    EventType.STATUS: StatusEvent,
    EventType.DISTRIBUTED: DistributedEvent,
    EventType.SUBSCRIBER: SubscriberEvent,
    "gap": GapEvent,
}
"""The shape of each event's data, by the event's name."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event ready to be sent; `about` names the subscribers that it concerns."""

    type: EventType
    data: str
    about: frozenset[str] = frozenset()


Decode = Callable[[Record], LiveEvent | None]
"""Gives the event that a record is for one publisher agent, or None."""


def package_event(agent: str) -> Decode:
    """Return what makes events of the agent's packages, TEST packages included."""
    name = agent.encode()

    def decode(record: Record) -> LiveEvent | None:
        if record.headers.get(AGENT_HEADER) != name:
            return None
        try:
            entry, action = decode_entry(record.headers), True
        except Undecodable:  # it blocks subscribers, so it is shown (R14)
            raw = record.headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace")
            entry, action = PackageEntry(raw, agent, Action.TEST), False
        document = PackageEvent(
            package_id=entry.package_id[:_MAX_NAME],
            offset=record.offset,
            action=entry.action.value if action else None,
            paths=list(entry.paths),
            deep_paths=list(entry.deep_paths),
            user=entry.user,
            size=entry.body_length,
            time=time_of(record.time_ms),
        )
        return LiveEvent(EventType.PACKAGE, document.model_dump_json())

    return decode


def status_event(agent: str) -> Decode:
    """Return what makes events of the statuses about the agent's packages."""

    def decode(record: Record) -> LiveEvent | None:
        try:
            status = decode_status(record.headers, record.value)
        except Undecodable:
            return None
        if status.publisher_agent != agent:
            return None
        document = StatusEvent(
            subscriber=status.subscriber[:_MAX_NAME],
            offset=status.offset,
            package_id=status.package_id[:_MAX_NAME],
            status=status.status.value,
            attempts=status.attempts,
            reason=status.reason[:_MAX_TEXT],
            time=time_of(status.decided_ms),
        )
        return LiveEvent(
            EventType.STATUS, document.model_dump_json(), frozenset({document.subscriber})
        )

    return decode


def distributed_event(agent: str) -> Decode:
    """Return what makes events of the agent's `PackageDistributed` CloudEvents."""

    def decode(record: Record) -> LiveEvent | None:
        try:
            event = decode_distributed(record.headers, record.value)
        except Undecodable:
            return None
        if event.publisher_agent != agent:
            return None
        document = DistributedEvent.model_validate(
            asdict(event) | {"time": time_of(record.time_ms)}
        )
        about = (*event.imported, *event.removed, *event.failed, *event.skipped, *event.away)
        return LiveEvent(EventType.DISTRIBUTED, document.model_dump_json(), frozenset(about))

    return decode
