"""What a mark has found and what was swept by it: for people, for `--json`, for the sweep."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from pydantic import TypeAdapter

from packhorse.blobs.api import StoredBlob
from packhorse_services.pipeline.sweep.work import BlobScan, Scan


class MarkState(StrEnum):
    """How far a mark has come."""

    RUNNING = "RUNNING"
    FAILED = "FAILED"
    COMPLETE = "COMPLETE"
    SWEPT = "SWEPT"


@dataclass(frozen=True, slots=True)
class BlobTotal:
    """How many blobs, and their bytes."""

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Blobs of both kinds that may go."""

    binaries: BlobTotal = BlobTotal()
    packages: BlobTotal = BlobTotal()


@dataclass(frozen=True, slots=True)
class SweepRemoval:
    """What became of one blob that was to go; `removed` false: it was renewed, and stays."""

    key: str
    length: int
    removed: bool


@dataclass(frozen=True, slots=True)
class MarkSummary:
    """A mark. Times are milliseconds of the author's database, ages are by the store's clock."""

    id: str
    state: MarkState
    started_ms: int
    safety_age_ms: int
    ended_ms: int = 0
    journal_id: str = ""
    oldest_offset: int = 0
    next_offset: int = 0
    subscribers: tuple[str, ...] = ()
    listed: Totals = field(default_factory=Totals)
    unused: Totals = field(default_factory=Totals)
    """What may go: no one refers to it, and it is older than the safety age."""
    swept: Totals = field(default_factory=Totals)
    unreadable: int = 0
    """How many blobs among the packages are none, or damaged. They stay."""
    unreadable_keys: tuple[str, ...] = ()
    """Some of them."""
    error: str = ""

    def failed(self, error: str) -> "MarkSummary":
        """Return the mark that ended so."""
        return replace(self, state=MarkState.FAILED, error=error[:400])


SUMMARY = TypeAdapter(MarkSummary)
"""A mark as JSON: in the table of marks, and by `--json`."""


List = Callable[[Sequence[str]], Iterator[StoredBlob]]
"""Lists the blobs of a group of shards. Runs on executors."""

Remove = Callable[[Iterator[StoredBlob]], Iterator[SweepRemoval]]
"""Removes what was not renewed. Runs on executors."""


class MarkReport(Protocol):
    """Where a mark's findings are; nothing that grows with the store is ever on the driver.

    References of the mark's scan and of the sweep's are kept apart, as rounds.
    """

    def state(self) -> MarkSummary | None:
        """Return how far the mark has come; None when nobody began it."""
        ...

    def note(self, summary: MarkSummary) -> None:
        """Write down how far the mark has come; the last word counts."""
        ...

    def list_blobs(self, listing: List, pieces: Sequence[Sequence[str]]) -> Totals:
        """Write down every blob that may go, from all groups of shards."""
        ...

    def round(self, round_name: str) -> AbstractContextManager[None]:
        """Hold what sources refer to; when the block ends, however it does, that is forgotten."""
        ...

    def read(self, round_name: str, name: str, scan: Scan, pieces: Sequence[Any]) -> None:
        """Read a source, now, and write down what it refers to.

        Its pieces are read independently of each other.
        """
        ...

    def read_blobs(self, round_name: str, name: str, scan: BlobScan, pieces: Sequence[Any]) -> None:
        """List the blobs of a source, now, read them, and write down what they refer to.

        One that is as it was when an earlier mark has read it is not read: that has remembered it.
        """
        ...

    def remember(self, round_name: str, before_ms: int) -> None:
        """Keep what the blobs that were read refer to, for later marks; that of older ones goes.

        Only of those that were last written or renewed before a time: what is written anew in the
        moment in which it is read would look as it was.
        """
        ...

    def body_not_read(self, round_name: str) -> str | None:
        """Return the key of a body that the log has and the store has not; None if all are read."""
        ...

    def unreadable(self, round_name: str) -> tuple[int, tuple[str, ...]]:
        """Return how many blobs among the packages are none, and the keys of the first few."""
        ...

    def choose_candidates(self, round_name: str, before_ms: int) -> Totals:
        """Write down what nobody refers to and was last written or renewed before a time."""
        ...

    def choose_doomed(self, round_name: str) -> Totals:
        """Leave of the candidates what this round has not found either; what goes now."""
        ...

    def remove_doomed(self, remove: Remove, check: Callable[[], None]) -> Totals:
        """Remove what goes, in batches, each written down; `check` comes before each of them.

        Returns what this mark's sweeps have removed, those before included.
        """
        ...
