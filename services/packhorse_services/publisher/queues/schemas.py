"""Queues and subscribers as HTTP shows them."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

from pydantic import BaseModel, Field

from packhorse.runtime.moments import time_of
from packhorse_services.publisher.queues.cache.columns import QueueEntry
from packhorse_services.publisher.queues.queue import SubscriberQueue

RANGE_FROM = "Of a part of its deep path: it begins with this path; empty: with the deep path"
RANGE_TO = "Of a part of its deep path: it ends before this path; empty: with the subtree"
TARGETS = "The subscribers that it is for; the others pass it over as SKIPPED. None: all"


class EntryDocument(BaseModel):
    """A package in a queue."""

    package_id: str
    offset: int
    action: str | None = Field(description="Null when the package's record can't be read")
    paths: list[str]
    deep_paths: list[str]
    range_from: str = Field(default="", description=RANGE_FROM)
    range_to: str = Field(default="", description=RANGE_TO)
    targets: list[str] = Field(default_factory=list, description=TARGETS)
    user: str
    size: int = Field(description="Bytes of the body as stored")
    time: datetime | None = Field(description="When it entered the journal")


ATTEMPTS = (
    "Failed ones that count towards max_retries; the first failures for a missing blob or a "
    "database that is away do not"
)


class HeadDocument(BaseModel):
    """What the subscriber says of the first package."""

    offset: int | None = Field(
        description="Null in overviews when it is older than what is in memory, and the queue "
        "itself names it; also null for a record that is in no queue, as one that is damaged"
    )
    attempts: int = Field(description=ATTEMPTS)
    last_error: str
    next_attempt_at: datetime | None
    blocked_since: datetime | None


class QueueSummary(BaseModel):
    """A queue without its packages."""

    subscriber: str
    state: str = Field(
        description="IDLE, RUNNING, RETRYING (the first package has failed and is tried again), "
        "BLOCKED (3 failed attempts), STALE (silent for 30 s), or what the subscriber says: GAP, "
        "JOURNAL_MISMATCH, WAITING_FOR_LEASE, WAITING_FOR_JOURNAL, WAITING_FOR_SUBSCRIBER, "
        "LOADING, PAUSED, STOPPED"
    )
    reason: str = Field(
        description="What the subscriber says of that: the first package's last error, from its "
        "first failure on, or why nothing is imported; empty when nothing is wrong"
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
        description="Seconds since the first package entered the journal; null in overviews when "
        "it is older than what is in memory"
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
    incomplete: bool = Field(
        description="Whether it began behind packages that it never imported, as with "
        "PACKHORSE_START=oldest or latest: its content is not all that was distributed"
    )
    started_offset: int = Field(description="The offset that it began behind; -1: with the first")
    behind: int | None = Field(
        description="Packages still to import, the length of its queue; null when it is known "
        "within bounds only"
    )
    behind_at_least: int
    behind_at_most: int
    lag_seconds: float | None = Field(
        description="Seconds since the first package to import entered the journal; null when it "
        "is older than what is in memory"
    )
    attempts: int = Field(description=f"Of the first package to import. {ATTEMPTS}")
    last_error: str
    next_attempt_at: datetime | None
    blocked_since: datetime | None
    editable: bool
    max_retries: int = Field(description="-1: unlimited")
    endpoint: str
    include: list[str] = Field(
        description="The paths that it takes, each with all below it; none: all. The nearest path "
        "at or above a node decides, of these and of `exclude`"
    )
    exclude: list[str] = Field(description="The paths that it leaves out")
    map_paths: dict[str, str] = Field(
        description="Paths of the author, and where they lie at the subscriber with all below them"
    )
    exclude_properties: list[str] = Field(
        description="Names of the properties that it leaves out; a `*` ends one for any rest"
    )
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
        targets=list(entry.targets),
        user=entry.user,
        size=entry.size,
        time=time_of(entry.time_ms),
    )


def _head(queue: SubscriberQueue) -> HeadDocument | None:
    if queue.extent.at_most == 0 and not queue.fails_unseen:
        return None
    subscription = queue.subscription
    return HeadDocument(
        offset=queue.head.offset if queue.head else None,
        attempts=subscription.retries,
        last_error=subscription.last_error,
        next_attempt_at=time_of(subscription.next_attempt_ms),
        blocked_since=time_of(subscription.blocked_since_ms),
    )


def summary(queue: SubscriberQueue) -> QueueSummary:
    """Show a queue without its packages."""
    return QueueSummary(
        subscriber=queue.subscriber.name,
        state=queue.state.value,
        reason=queue.subscription.last_error,
        length=queue.length,
        at_least=queue.extent.at_least,
        at_most=queue.extent.at_most,
        length_unknown=queue.length_unknown.value if queue.length_unknown else None,
        offset=queue.subscription.offset,
        head=_head(queue),
        lag_seconds=queue.lag_s,
        errors=queue.failed,
        editable=queue.subscriber.editable,
    )


def queue_list(queues: Sequence[SubscriberQueue], agent: str) -> QueueList:
    """Show all queues, and which are the slowest."""
    live = [queue for queue in queues if not queue.stale]
    return QueueList(
        agent=agent,
        slowest=_slowest(live),
        slowest_editable=_slowest([queue for queue in live if queue.subscriber.editable]),
        queues=[summary(queue) for queue in queues],
    )


def _slowest(queues: Sequence[SubscriberQueue]) -> SlowestDocument | None:
    if not queues:
        return None
    queue = min(queues, key=lambda one: (one.subscription.offset, one.subscriber.name))
    return SlowestDocument(
        subscriber=queue.subscriber.name,
        state=queue.state.value,
        length=queue.length,
        at_least=queue.extent.at_least,
        at_most=queue.extent.at_most,
        offset=queue.subscription.offset,
        head=_head(queue),
        queue=queue_url(queue.subscriber.name),
    )


def queue_url(subscriber: str) -> str:
    """Return where a subscriber's queue is."""
    return f"/queues/{quote(subscriber, safe='')}"


def queue_document(queue: SubscriberQueue, agent: str, following: str | None) -> QueueDocument:
    """Show a queue and a page of it."""
    entries = [entry_document(entry) for entry in queue.page.entries]
    parts = summary(queue).__dict__
    return QueueDocument(**parts, agent=agent, entries=entries, next=following)


def subscriber_document(queue: SubscriberQueue) -> SubscriberDocument:
    """Show a subscriber."""
    message, subscription = queue.subscriber.message, queue.subscription
    return SubscriberDocument(
        subscriber=message.subscriber,
        instance=message.subscriber_instance,
        state=queue.state.value,
        offset=subscription.offset,
        settled_offset=subscription.settled_offset,
        incomplete=subscription.incomplete,
        started_offset=subscription.started_offset,
        behind=queue.length,
        behind_at_least=queue.extent.at_least,
        behind_at_most=queue.extent.at_most,
        lag_seconds=queue.lag_s,
        attempts=subscription.retries,
        last_error=subscription.last_error,
        next_attempt_at=time_of(subscription.next_attempt_ms),
        blocked_since=time_of(subscription.blocked_since_ms),
        editable=message.editable,
        max_retries=message.max_retries,
        endpoint=message.endpoint,
        include=list(message.include),
        exclude=list(message.exclude),
        map_paths=dict(message.map_paths),
        exclude_properties=list(message.exclude_properties),
        last_seen=time_of(queue.subscriber.seen_ms),
    )
