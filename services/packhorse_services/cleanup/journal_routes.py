"""What the journal keeps, over HTTP: the topics, their retention, discarding packages."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, Self, TypeVar

from fastapi import APIRouter, Query, Request
from psycopg import Connection
from pydantic import BaseModel, ConfigDict, Field, model_validator

from packhorse.bookkeeping.audit_rows import write_act
from packhorse.runtime import audit
from packhorse.runtime.moments import Moment
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse_services.cleanup.keeping import Discarded, KeptTopic
from packhorse_services.cleanup.records import JournalRecords
from packhorse_services.cleanup.routes import Admin, in_transaction

Topic = Literal["package", "status", "discovery", "command", "event"]
LeaveBehind = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=255)]],
    Field(
        default_factory=list,
        max_length=1000,
        description="Subscribers that may lose packages by it",
    ),
]
_LONGEST_S = 10 * 366 * 24 * 3600


class RetentionRequest(StrictBody):
    """How long a topic is to keep its records."""

    retention_s: int | None = Field(ge=60, le=_LONGEST_S, description="null: for ever")
    leave_behind: LeaveBehind


class DiscardRequest(StrictBody):
    """What is to be removed from the log of packages."""

    up_to: int = Field(ge=0, lt=2**63 - 1, description="The last offset that goes")
    leave_behind: LeaveBehind
    dry_run: bool = Field(default=False, description="Only say what would go, and who loses it")


class RecordsPage(BaseModel):
    """Which records of a topic."""

    model_config = ConfigDict(extra="forbid")

    partition: int = Field(default=0, ge=0, le=10_000)
    offset: int | None = Field(default=None, ge=0, lt=2**63 - 1, description="The first one")
    since: Moment | None = Field(
        default=None, description="From this time on, instead of an offset"
    )
    limit: int = Field(default=20, ge=1, le=50)
    bodies: bool = Field(
        default=False, description="With the first nodes of a package; of one record, with limit=1"
    )

    @model_validator(mode="after")
    def _bodies_of_one(self) -> Self:
        if self.bodies and self.limit > 1:
            raise ValueError("bodies are shown of one record: limit=1")
        return self


router = APIRouter(route_class=StrictRoute, prefix="/journal", tags=["journal"])
Result = TypeVar("Result")


@router.get("/topics", responses=documented(503))
async def list_journal_topics(request: Request, _: Admin) -> list[KeptTopic]:
    """Return the five topics: how long they keep records, and which they hold."""
    return await asyncio.to_thread(request.app.state.keeping.shown)


@router.get("/topics/{topic}/records", responses=documented(422, 503))
async def list_journal_records(
    request: Request,
    _: Admin,
    topic: Topic,
    page: Annotated[RecordsPage, Query()],
) -> JournalRecords:
    """Return records of a topic, decoded; without an offset or a time the newest ones.

    For admin, because it shows content of every path and what every agent says.
    """
    name = request.app.state.keeping.topics.by_part()[topic]
    start = page.offset if page.since is None else page.since
    read = partial(request.app.state.records.read, name, page.partition, start, page.limit)
    found: JournalRecords = await asyncio.to_thread(read, bodies=page.bodies)
    return found


@router.put("/topics/{topic}/retention", responses=documented(409, 503))
async def set_topic_retention(
    request: Request, _: Admin, topic: Topic, body: RetentionRequest
) -> KeptTopic:
    """Let a topic keep its records for so long from now on.

    Refused where statuses, commands or events would be kept for less time than packages, or
    packages for less than programs want, and where subscribers have not imported what goes.
    """
    audit.note(request, retention_s=body.retention_s, left_behind=",".join(body.leave_behind))
    retention_ms = -1 if body.retention_s is None else body.retention_s * 1000
    change = partial(
        request.app.state.keeping.retain,
        topic=topic,
        retention_ms=retention_ms,
        leave_behind=body.leave_behind,
    )
    return await _with_bookkeeper(request, change)


@router.post("/discard", responses=documented(409, 503))
async def discard_packages(request: Request, _: Admin, body: DiscardRequest) -> Discarded:
    """Remove the packages up to an offset from the log, for everybody and for good.

    Refused, with their names, while subscribers have not imported them.
    """
    audit.note(request, up_to=body.up_to, dry_run=body.dry_run)
    audit.note(request, left_behind=",".join(body.leave_behind))
    discard = partial(
        request.app.state.keeping.discard,
        up_to=body.up_to,
        leave_behind=body.leave_behind,
        dry_run=body.dry_run,
    )
    return await _with_bookkeeper(request, discard, changes=not body.dry_run)


async def _with_bookkeeper(
    request: Request, act: Callable[[Connection], Result], *, changes: bool = True
) -> Result:
    """Do something to the journal, and say in the same transaction who did."""

    def acting(connection: Connection) -> Result:
        if changes:
            write_act(connection)
        return act(connection)

    return await in_transaction(request, acting)
