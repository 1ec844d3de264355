"""The documents of jobs."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from packhorse.runtime.moments import Moment
from packhorse.runtime.validation import StrictBody
from packhorse_services.jobs.http.fields import Document, JobId, Properties, Topic

State = Literal["QUEUED", "ACTIVE", "SUCCEEDED", "STOPPED", "GIVEN_UP", "ERROR", "DROPPED"]


class ProgressDocument(Document):
    """How far its consumer says it is."""

    step: int
    steps: int = Field(description="0: not reported")
    eta: datetime | None
    message: str


class AttemptDocument(Document):
    """An attempt that did not finish the job."""

    number: int
    instance: str
    started_at: datetime
    ended_at: datetime
    outcome: str = Field(description="FAILED, TIMED_OUT, LOST, RELEASED")
    reason: str


class JobSummary(Document):
    """A job without what may be long."""

    number: int = Field(description="Names the job in URLs; never given twice")
    topic: str
    id: str | None = Field(description="A topic and an id are one job")
    queue: str
    priority: int
    state: State
    application: str = Field(description="Who gave it")
    created_at: datetime
    ready_at: datetime = Field(description="It is not begun before")
    attempts: int = Field(description="How many were begun, the present one included")
    max_retries: int = Field(description="-1: without end")
    retry: bool = Field(description="An earlier attempt may have done a part of the work")
    instance: str | None = Field(description="Who works on it, or has finished it")
    started_at: datetime | None
    finished_at: datetime | None
    stop_requested: bool
    only_on: str | None = Field(
        description="The one instance that may do it; @leader: the first that consumes the topic"
    )
    schedule: str | None = Field(description="The schedule that gave it")
    progress: ProgressDocument
    result_message: str


class JobDocument(JobSummary):
    """A job."""

    properties: dict[str, Any]
    extra: dict[str, Any] = Field(description="What its consumer has left for others to see")
    log: list[str] = Field(description="The newest lines of its consumer's log")
    past_attempts: list[AttemptDocument] = Field(description="The newest that did not finish it")
    traceparent: str | None = Field(description="The trace of who gave it (W3C)")


class JobList(BaseModel):
    """Jobs: unfinished ones oldest first, history newest first."""

    jobs: list[JobSummary]
    next: str | None = Field(description="URL of the next page, or null at the end")


class JobRequest(StrictBody):
    """A job to do."""

    topic: Topic
    properties: Properties = Field(default={}, description="At most 64 KiB as JSON")
    id: JobId | None = Field(default=None, description="A topic and an id are one job")
    application: str = Field(
        default="",
        max_length=255,
        pattern=r"^[ -~]*$",
        description="Whose job it is: who gives an id again under the same name replaces what "
        "waits and runs again what is done. Without a name a known id changes nothing",
    )
    priority: int = Field(default=0, ge=-100, le=100)
    ready_at: Moment | None = Field(default=None, description="Not before; not with delay_s")
    delay_s: float | None = Field(
        default=None, ge=0, le=366 * 86_400, description="Not before so many seconds from now"
    )
    only_on: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=r"^(@leader|[A-Za-z0-9][A-Za-z0-9._-]*)$",
        description="The one instance that may do it, or @leader",
    )
    max_retries: int | None = Field(
        default=None, ge=-1, le=1_000_000, description="null: as its queue says; -1: without end"
    )


class AddedDocument(Document):
    """What became of a request to add a job."""

    verdict: Literal["ADDED", "EXISTING", "UPDATED", "REACTIVATED"] = Field(
        description="UPDATED: it waited and has the new properties. REACTIVATED: it runs once more"
    )
    job: JobDocument
