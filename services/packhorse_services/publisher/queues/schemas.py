"""Queues and subscribers as HTTP shows them."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

from pydantic import BaseModel, Field

from packhorse_services.publisher.queues.columns import QueueEntry
from packhorse_services.publisher.queues.queue import Queue
from packhorse_services.publisher.schemas import RANGE_FROM, RANGE_TO, time_of


class EntryDocument(BaseModel):
    """A package in a queue."""

    package_id: str
    offset: int
    action: str | None = Field(description="Null when the package's record can't be read")
    paths: list[str]
    deep_paths: list[str]
    range_from: str = Field(default="", description=RANGE_FROM)
    range_to: str = Field(default="", description=RANGE_TO)
    user: str
    size: int = Field(description="Bytes of the body as stored")
    time: datetime | None = Field(description="When it entered the journal")


class HeadDocument(BaseModel):
    """What the subscriber says of the first package."""

    offset: int | None = Field(
        description="Null in overviews when it is older than what is in memory; the queue itself "
        "names it"
    )
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
        description="Null when it is known within bounds only; see length_unknown"
    )
    at_least: int = Field(description="Lower bound of the length, and the length when it is known")
    at_most: int = Field(description="Upper bound of the length: offsets that may be packages")
    length_unknown: str | None = Field(
        description="Why length is null: AWAY (the subscriber is silent; ask for this queue by "
        "name), LOADING (it is being read; ask again), TOO_LONG (more than the publisher may "
        "keep in memory, see cache_bytes; its pages are exact all the same)"
    )
    offset: int = Field(description="The last package that the subscriber is done with; -1: none")
    head: HeadDocument | None = Field(description="Null when the queue is empty")
    lag_seconds: float | None = Field(
        description="Age of the head; null in overviews when it is older than what is in memory"
    )
    errors: int = Field(description="Packages in the error queue")
    editable: bool


class QueueDocument(QueueSummary):
    """A queue and a page of it, oldest first."""

    agent: str
    entries: list[EntryDocument] = Field(
        description="May be fewer than the limit, even none, while next is not null: a page costs "
        "a bounded amount of looking"
    )
    next: str | None = Field(description="URL of the next page, or null at the end")


class SlowestDocument(BaseModel):
    """The queue of the live subscriber that is furthest behind."""

    subscriber: str
    state: str
    length: int | None = Field(description="As in the subscriber's own row")
    at_least: int
    at_most: int
    offset: int
    head: HeadDocument | None
    queue: str = Field(description="URL of that queue, to page through it")


class QueueList(BaseModel):
    """All queues of a publisher agent."""

    agent: str
    slowest: SlowestDocument | None = Field(
        description="Of all subscribers that are not stale: what is above its offset is not yet "
        "everywhere. Null when there is none"
    )
    slowest_editable: SlowestDocument | None = Field(
        description="Of the editable ones that are not stale. Null when there is none"
    )
    queues: list[QueueSummary]


class SubscriberDocument(BaseModel):
    """A subscriber as it last announced itself."""

    subscriber: str
    instance: str
    state: str
    offset: int
    settled_offset: int = Field(
        description="Every status up to this offset is in the journal; -1: none yet"
    )
    lag_packages: int | None = Field(description="Null when it is known within bounds only")
    lag_at_least: int
    lag_at_most: int
    lag_seconds: float | None = Field(
        description="Age of the first package to import; null when it is older than what is in "
        "memory"
    )
    attempts: int = Field(description="Failed ones of the first package to import")
    last_error: str
    next_attempt_at: datetime | None
    blocked_since: datetime | None
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
        range_from=entry.range_from,
        range_to=entry.range_to,
        user=entry.user,
        size=entry.size,
        time=time_of(entry.time_ms),
    )


def _head(queue: Queue) -> HeadDocument | None:
    if queue.extent.at_most == 0:
        return None
    lane = queue.lane
    return HeadDocument(
        offset=queue.head.offset if queue.head else None,
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
        at_least=queue.extent.at_least,
        at_most=queue.extent.at_most,
        length_unknown=queue.length_unknown.value if queue.length_unknown else None,
        offset=queue.lane.offset,
        head=_head(queue),
        lag_seconds=queue.lag_s,
        errors=queue.failed,
        editable=queue.subscriber.editable,
    )


def queue_list(queues: Sequence[Queue], agent: str) -> QueueList:
    """Show all queues, and which are the slowest."""
    live = [queue for queue in queues if not queue.stale]
    return QueueList(
        agent=agent,
        slowest=_slowest(live),
        slowest_editable=_slowest([queue for queue in live if queue.subscriber.editable]),
        queues=[summary(queue) for queue in queues],
    )


def _slowest(queues: Sequence[Queue]) -> SlowestDocument | None:
    if not queues:
        return None
    queue = min(queues, key=lambda one: (one.lane.offset, one.subscriber.name))
    return SlowestDocument(
        subscriber=queue.subscriber.name,
        state=queue.state.value,
        length=queue.length,
        at_least=queue.extent.at_least,
        at_most=queue.extent.at_most,
        offset=queue.lane.offset,
        head=_head(queue),
        queue=queue_url(queue.subscriber.name),
    )


def queue_url(subscriber: str) -> str:
    """Return where a subscriber's queue is."""
    return f"/queues/{quote(subscriber, safe='')}"


def queue_document(queue: Queue, agent: str, following: str | None) -> QueueDocument:
    """Show a queue and a page of it."""
    entries = [entry_document(entry) for entry in queue.page.entries]
    parts = summary(queue).__dict__
    return QueueDocument(**parts, agent=agent, entries=entries, next=following)


def subscriber_document(queue: Queue) -> SubscriberDocument:
    """Show a subscriber."""
    one, lane = queue.subscriber, queue.lane
    return SubscriberDocument(
        subscriber=one.name,
        instance=one.instance,
        state=queue.state.value,
        offset=lane.offset,
        settled_offset=lane.settled_offset,
        lag_packages=queue.length,
        lag_at_least=queue.extent.at_least,
        lag_at_most=queue.extent.at_most,
        lag_seconds=queue.lag_s,
        attempts=lane.retries,
        last_error=lane.last_error,
        next_attempt_at=time_of(lane.next_attempt_ms),
        blocked_since=time_of(lane.blocked_since_ms),
        editable=one.editable,
        max_retries=one.max_retries,
        endpoint=one.endpoint,
        last_seen=time_of(one.seen_ms),
    )
