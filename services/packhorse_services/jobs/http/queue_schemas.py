"""The documents of job queues and their statistics."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from packhorse.jobs.ledger.figures import JobFigures
from packhorse.jobs.ledger.waiting import Unconsumed
from packhorse.jobs.queue import JobQueue, QueueConfiguration, QueueType
from packhorse.runtime.validation import StrictBody
from packhorse_services.jobs.http.fields import Document, Pattern

TypeName = Literal["ORDERED", "UNORDERED", "TOPIC_ROUND_ROBIN"]

_RANKING = "Of the queues that take a topic the highest wins, then the closest pattern"
_MAX_INT = 2**31 - 1
_LONGEST_S = 365 * 86_400.0
_TYPE = "ORDERED: one at a time in the whole cluster"
_PARALLEL = "On one instance; -1: 15, or its number of cores if that is higher"
_RETRIES = "Failed attempts beyond the first; -1: without end"
_DELAY = "After the first failure; it doubles with each one more"
_TIMEOUT = "How long an attempt may last; null: without end"
_HISTORY = "false: jobs without an id that succeed are forgotten at once"
_MORE = "More may wait: 10,000 ready ones of a topic and 10,000 delayed ones in all are counted"
_CREATOR = "The instance that gave a job may begin it before others"


class QueueBody(StrictBody):
    """How the jobs of some topics are done."""

    patterns: list[Pattern] = Field(min_length=1, max_length=100, description="Of topics")
    ranking: int = Field(default=0, ge=-_MAX_INT, le=_MAX_INT, description=_RANKING)
    type: TypeName = Field(default="ORDERED", description=_TYPE)
    max_parallel: int = Field(default=-1, ge=-1, le=1_000, description=_PARALLEL)
    max_retries: int = Field(default=10, ge=-1, le=1_000_000, description=_RETRIES)
    retry_delay_s: float = Field(default=2.0, ge=0, le=_LONGEST_S, description=_DELAY)
    max_retry_delay_s: float = Field(default=3600.0, ge=0, le=_LONGEST_S)
    timeout_s: float | None = Field(default=None, gt=0, le=_LONGEST_S, description=_TIMEOUT)
    keep_history: bool = Field(default=True, description=_HISTORY)
    prefer_creator: bool = Field(default=False, description=_CREATOR)


class JobQueueDocument(BaseModel):
    """A queue."""

    name: str
    patterns: list[str]
    ranking: int = Field(description=_RANKING)
    type: TypeName = Field(description=_TYPE)
    max_parallel: int = Field(description=_PARALLEL)
    max_retries: int = Field(description=_RETRIES)
    retry_delay_s: float = Field(description=_DELAY)
    max_retry_delay_s: float
    timeout_s: float | None = Field(description=_TIMEOUT)
    keep_history: bool = Field(description=_HISTORY)
    prefer_creator: bool = Field(description=_CREATOR)
    suspended: bool = Field(description="No job of it is begun, on any instance")
    changed_at: datetime


class FiguresDocument(Document):
    """What waits and what was done; it survives restarts."""

    queued: int = Field(description="All that wait, the delayed ones too; see `has_more`")
    delayed: int = Field(description="Those of them that wait for their time")
    active: int
    has_more: bool = Field(description=_MORE)
    finished: int
    succeeded: int
    cancelled: int = Field(description="Finished in another state than SUCCEEDED")
    stopped: int
    given_up: int
    errors: int
    dropped: int
    attempts: int = Field(description="That have ended, however")
    failed_attempts: int
    average_waiting_s: float | None = Field(description="From being ready to being begun")
    average_processing_s: float | None = Field(description="Of an attempt")
    since: datetime | None = Field(description="null: nothing has ended yet")
    last_started_at: datetime | None
    last_finished_at: datetime | None


class JobQueueSummary(JobQueueDocument):
    """A queue with its statistics."""

    statistics: FiguresDocument


class JobQueueList(BaseModel):
    """All queues, by name."""

    at: datetime = Field(description="By the database's clock")
    queues: list[JobQueueSummary]
    all: FiguresDocument


class MissingConsumerDocument(Document):
    """Who alone may do some jobs of a topic, and does not."""

    only_on: str = Field(description="An instance that is away or has no consumer; or @leader")
    waiting: int = Field(description="Jobs that could begin; 1000: or more")
    since: datetime = Field(description="When the first of them could have begun")


class TopicDocument(BaseModel):
    """A topic that jobs were given for."""

    topic: str
    statistics: FiguresDocument
    unconsumed_since: datetime | None = Field(
        description="Jobs have waited since then because no live instance has a consumer for it"
    )
    unconsumed_on: list[MissingConsumerDocument] = Field(
        description="Other instances do jobs of it; these jobs wait for one that does not"
    )


class TopicList(BaseModel):
    """All topics that jobs were given for, by name."""

    at: datetime
    current: bool = Field(
        description="False while it is not known which instances live, and what they can do"
    )
    topics: list[TopicDocument]


def topic_document(topic: str, figures: JobFigures, waiting: Sequence[Unconsumed]) -> TopicDocument:
    """Return the document of a topic, whose jobs wait as `waiting` says."""
    return TopicDocument(
        topic=topic,
        statistics=FiguresDocument.model_validate(figures),
        unconsumed_since=next((one.since for one in waiting if not one.only_on), None),
        unconsumed_on=[
            MissingConsumerDocument.model_validate(one) for one in waiting if one.only_on
        ],
    )


def configuration_of(name: str, body: QueueBody) -> QueueConfiguration:
    """Return what a caller wants. Raises `InvalidQueue`, `InvalidName`."""
    typed = {"patterns": tuple(body.patterns), "type": QueueType(body.type)}
    return QueueConfiguration(name, **body.model_dump() | typed)


def queue_document(queue: JobQueue) -> JobQueueDocument:
    """Return the document of a queue."""
    configured = asdict(queue.configuration)
    return JobQueueDocument(**configured, suspended=queue.suspended, changed_at=queue.changed_at)
