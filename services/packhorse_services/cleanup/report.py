"""What a cleanup run did, and why: for people, for HTTP, for the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
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
    reason: Reason
    length: int
    log_offset: int | None = None

    @property
    def package_id(self) -> str:
        """The id of its package, which is the last part of its key."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Removal:
    """One blob of a report; `removed_at` is None when it is still there, as after a dry run."""

    candidate: Candidate
    removed_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        """Return it as HTTP and `--json` show it."""
        return {
            "key": self.candidate.key,
            "reason": self.candidate.reason.value,
            "bytes": self.candidate.length,
            "offset": self.candidate.log_offset,
            "removed_at": _time(self.removed_at),
        }


@dataclass(frozen=True, slots=True)
class Total:
    """How many blobs of one reason, and their bytes."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """A cleanup run without its removals one by one."""

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
    kept: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    totals: Mapping[str, Total] = field(default_factory=dict)

    def as_json(self, removals: Sequence[Removal] | None = None) -> dict[str, Any]:
        """Return it as HTTP and `--json` show it; absent members are not known (yet)."""
        shown: dict[str, Any] = {
            "id": self.id,
            "origin": self.origin,
            "dry_run": self.dry_run,
            "state": self.state.value,
            "requested_at": _time(self.requested_at),
            "started_at": _time(self.started_at),
            "ended_at": _time(self.ended_at),
            "journal_id": self.journal_id,
            "oldest_offset": self.oldest_offset,
            "next_offset": self.next_offset,
            "kept": dict(self.kept),
            "removed": {
                reason: {"count": total.count, "bytes": total.bytes}
                for reason, total in self.totals.items()
            },
            "error": self.error,
        }
        if removals is not None:
            shown["removals"] = [removal.as_json() for removal in removals]
        return {name: value for name, value in shown.items() if value is not None}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
