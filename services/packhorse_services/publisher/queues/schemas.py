"""Queues and subscribers as HTTP shows them."""

from datetime import datetime

from pydantic import BaseModel, Field

from packhorse_services.publisher.queues.columns import QueueEntry
from packhorse_services.publisher.queues.errors import FailedPackage
from packhorse_services.publisher.queues.queue import Queue
from packhorse_services.publisher.schemas import time_of


class EntryDocument(BaseModel):
    """A package in a queue."""

    package_id: str
    offset: int
    action: str | None = Field(description="Null when the package's record can't be read")
    paths: list[str]
    deep_paths: list[str]
    user: str
    size: int = Field(description="Bytes of the body as stored")
    time: datetime | None = Field(description="When it entered the journal")


class HeadDocument(BaseModel):
    """What the subscriber says of the first package."""

    offset: int
    attempts: int = Field(description="Failed ones")
    last_error: str
    next_attempt_at: datetime | None
    blocked_since: datetime | None


class QueueSummary(BaseModel):
    """A queue without its packages."""

    subscriber: str
    state: str = Field(
        description="IDLE, RUNNING, BLOCKED (3 failed attempts), STALE (silent for 30 s), or "
        "what the subscriber says: GAP, JOURNAL_MISMATCH, WAITING_FOR_LEASE, PAUSED, STOPPED"
    )
    length: int | None = Field(
        description="Null when the subscriber is away and nobody asked for it"
    )
    offset: int = Field(description="The last package that the subscriber is done with; -1: none")
    head: HeadDocument | None
    lag_seconds: float = Field(description="Age of the head")
    errors: int = Field(description="Packages in the error queue")
    editable: bool


class QueueDocument(QueueSummary):
    """A queue and a page of it, oldest first."""

    agent: str
    entries: list[EntryDocument]
    next: str | None = Field(description="URL of the next page, or null at the end")


class QueueList(BaseModel):
    """All queues of a publisher agent."""

    agent: str
    queues: list[QueueSummary]


class FailedDocument(BaseModel):
    """A package that the subscriber gave up on."""

    package_id: str
    offset: int
    attempts: int
    reason: str
    time: datetime | None


class ErrorQueueDocument(BaseModel):
    """A subscriber's error queue, oldest first."""

    subscriber: str
    length: int
    entries: list[FailedDocument]
    next: str | None


class SubscriberDocument(BaseModel):
    """A subscriber as it last announced itself."""

    subscriber: str
    instance: str
    state: str
    offset: int
    lag_packages: int | None
    lag_seconds: float
    attempts: int
    last_error: str
    editable: bool
    max_retries: int = Field(description="-1: unlimited")
    endpoint: str
    last_seen: datetime | None


class SubscriberList(BaseModel):
    """All subscribers of a publisher agent."""

    agent: str
    subscribers: list[SubscriberDocument]


def entry_document(entry: QueueEntry) -> EntryDocument:
    """Show a package."""
    return EntryDocument(
        package_id=entry.package_id,
        offset=entry.offset,
        action=entry.action.value if entry.action else None,
        paths=list(entry.paths),
        deep_paths=list(entry.deep_paths),
        user=entry.user,
        size=entry.size,
        time=time_of(entry.time_ms),
    )


def _head(queue: Queue) -> HeadDocument | None:
    if queue.head is None:
        return None
    lane = queue.lane
    return HeadDocument(
        offset=queue.head.offset,
        attempts=lane.retries,
        last_error=lane.last_error,
        next_attempt_at=time_of(lane.next_attempt_ms),
        blocked_since=time_of(lane.blocked_since_ms),
    )


def summary(queue: Queue) -> QueueSummary:
    """Show a queue without its packages."""
    return QueueSummary(
        subscriber=queue.subscriber.name,
        state=queue.state.value,
        length=queue.length,
        offset=queue.lane.offset,
        head=_head(queue),
        lag_seconds=queue.lag_s,
        errors=queue.failed,
        editable=queue.subscriber.editable,
    )


def queue_document(queue: Queue, agent: str, following: str | None) -> QueueDocument:
    """Show a queue and a page of it."""
    entries = [entry_document(entry) for entry in queue.page]
    parts = summary(queue).__dict__
    return QueueDocument(**parts, agent=agent, entries=entries, next=following)


def failed_document(failed: FailedPackage) -> FailedDocument:
    """Show a package that was given up."""
    return FailedDocument(
        package_id=failed.package_id,
        offset=failed.offset,
        attempts=failed.attempts,
        reason=failed.reason,
        time=time_of(failed.decided_ms),
    )


def subscriber_document(queue: Queue) -> SubscriberDocument:
    """Show a subscriber."""
    one, lane = queue.subscriber, queue.lane
    return SubscriberDocument(
        subscriber=one.name,
        instance=one.instance,
        state=queue.state.value,
        offset=lane.offset,
        lag_packages=queue.length,
        lag_seconds=queue.lag_s,
        attempts=lane.retries,
        last_error=lane.last_error,
        editable=one.editable,
        max_retries=one.max_retries,
        endpoint=one.endpoint,
        last_seen=time_of(one.seen_ms),
    )
