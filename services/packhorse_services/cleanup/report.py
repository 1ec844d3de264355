"""What a cleanup run did, and why: for people, for HTTP, for the log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field


class RemovalReason(StrEnum):
    """Why a blob goes."""

    FORGOTTEN = "forgotten"
    """Its package is no longer in the log."""
    ORPHAN = "orphan"
    """No package was ever committed for it."""


class RunState(StrEnum):
    """How far a run has come."""

    REQUESTED = "REQUESTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABANDONED = "ABANDONED"
    """Its process has ended or lost its turn; the next run finishes what it began."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A blob that goes. `log_offset` is None for an orphan."""

    key: str
    reason: RemovalReason
    length: int
    log_offset: int | None = None

    @property
    def package_id(self) -> str:
        """The id of its package, which is the last part of its key."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ReasonTotal:
    """How many blobs of one reason, and their bytes."""

    count: int
    bytes: int


class CleanupRun(BaseModel, frozen=True):
    """A cleanup run without its removals one by one; what is not known (yet) is not set."""

    id: int
    origin: str
    dry_run: bool
    state: RunState
    requested_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    journal_id: str | None = None
    oldest_offset: int | None = None
    next_offset: int | None = None
    kept: Mapping[str, int] = Field(description="Blobs that stay, by why")
    totals: Mapping[str, ReasonTotal] = Field(
        serialization_alias="removed", description="Blobs that go, by why"
    )
    error: str | None = None


class RemovalDocument(BaseModel):
    """One blob that goes."""

    key: str
    reason: RemovalReason
    bytes: int
    offset: int | None = Field(description="Of its package; null for an orphan")
    removed_at: datetime | None = Field(description="Null while it is there, as after a dry run")


class RunWithRemovals(CleanupRun, frozen=True):
    """A cleanup run with a page of its removals."""

    removals: Sequence[RemovalDocument]
    next: str | None = Field(default=None, description="URL of the next page, or null at the end")


def with_removals(run: CleanupRun, removals: Sequence[RemovalDocument]) -> RunWithRemovals:
    """Return a run as HTTP and `--json` show it, both without what is not set."""
    return RunWithRemovals(**run.model_dump(exclude_unset=True), removals=removals)


def as_lines(run: CleanupRun, removals: Sequence[RemovalDocument]) -> Iterator[str]:
    """Yield a run as a terminal shows it, with its first removals and how many more there are."""
    verb = "would remove" if run.dry_run else "removed"
    yield f"run {run.id}: the log holds offsets {run.oldest_offset} to {run.next_offset}"
    for gone in removals:
        where = "" if gone.offset is None else f", offset {gone.offset}"
        yield f"  {verb} {gone.key} ({gone.reason}, {gone.bytes} bytes{where})"
    more = sum(total.count for total in run.totals.values()) - len(removals)
    if more > 0:
        after = f"?after={removals[-1].key}" if removals else ""
        yield f"  and {more} more: GET /cleanup/runs/{run.id}{after}"
    for reason, total in run.totals.items():
        yield f"{verb} {total.count} of {total.bytes} bytes: {reason}"
    if not run.totals:
        yield f"{verb} nothing"
    kept = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in run.kept.items())
    yield f"kept: {kept}"
