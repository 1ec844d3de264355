"""A mark's report in memory: what Spark does with tables, with sets."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from packhorse.blobs.api import StoredBlob
from packhorse_services.pipeline.sweep.report import BlobTotal, List, MarkSummary, Remove, Totals
from packhorse_services.pipeline.sweep.work import BlobScan, FindingKind, Found, Scan


@dataclass
class PlainReport:
    """A `MarkReport`."""

    summary: MarkSummary | None = None
    blobs: list[StoredBlob] = field(default_factory=list)
    found: dict[str, dict[FindingKind, set[str]]] = field(default_factory=dict)
    candidates: list[StoredBlob] = field(default_factory=list)
    doomed: list[StoredBlob] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)
    read_sources: list[str] = field(default_factory=list)
    of_blobs: dict[StoredBlob, set[Found]] = field(default_factory=dict)
    remembered: dict[StoredBlob, set[Found]] = field(default_factory=dict)
    """Of marks before, which share it."""
    read_blob_keys: list[str] = field(default_factory=list)

    def state(self) -> MarkSummary | None:
        return self.summary

    def note(self, summary: MarkSummary) -> None:
        self.summary = summary

    def list_blobs(self, listing: List, pieces: Sequence[Sequence[str]]) -> Totals:
        self.blobs = [blob for piece in pieces for blob in listing(piece)]
        return _totals(self.blobs)

    @contextmanager
    def round(self, round_name: str) -> Iterator[None]:
        self.found[round_name] = {kind: set() for kind in FindingKind}
        self.of_blobs = {}
        yield

    def read(self, round_name: str, name: str, scan: Scan, pieces: Sequence[Any]) -> None:
        self.read_sources.append(name)
        for piece in pieces:
            for one in scan(piece):
                self.found[round_name][one.kind].add(one.key)

    def read_blobs(self, round_name: str, name: str, scan: BlobScan, pieces: Sequence[Any]) -> None:
        self.read_sources.append(name)
        listed = [blob for piece in pieces for blob in scan.listed(piece)]
        again = {blob: self.remembered[blob] for blob in listed if blob in self.remembered}
        new = [blob for blob in listed if blob not in again]
        self.read_blob_keys += [blob.key for blob in new]
        self.of_blobs |= again
        for blob, one in scan.read(iter(new)):
            self.of_blobs.setdefault(blob, set()).add(one)
        for one in itertools.chain.from_iterable(self.of_blobs.values()):
            self.found[round_name][one.kind].add(one.key)

    def remember(self, round_name: str, before_ms: int) -> None:
        whole = {
            blob: found
            for blob, found in self.of_blobs.items()
            if blob.modified_ms <= before_ms and Found(FindingKind.READ, blob.key) in found
        }
        self.remembered.clear()
        self.remembered.update(whole)

    def body_not_read(self, round_name: str) -> str | None:
        found = self.found[round_name]
        return min(found[FindingKind.IN_LOG] - found[FindingKind.READ], default=None)

    def kept(self, round_name: str) -> set[str]:
        found = self.found[round_name]
        return (
            found[FindingKind.REFERENCE] | found[FindingKind.NAME] | found[FindingKind.UNREADABLE]
        )

    def unreadable(self, round_name: str) -> tuple[int, tuple[str, ...]]:
        found = sorted(self.found[round_name][FindingKind.UNREADABLE])
        return len(found), tuple(found)

    def choose_candidates(self, round_name: str, before_ms: int) -> Totals:
        kept = self.kept(round_name)
        old = [blob for blob in self.blobs if blob.modified_ms <= before_ms]
        self.candidates = [blob for blob in old if blob.key not in kept]
        return _totals(self.candidates)

    def choose_doomed(self, round_name: str) -> Totals:
        kept = self.kept(round_name) | set(self.removed)
        self.doomed = [blob for blob in self.candidates if blob.key not in kept]
        return _totals(self.doomed)

    def remove_doomed(self, remove: Remove, check: Callable[[], None]) -> Totals:
        check()
        for done in remove(iter(self.doomed)):
            if done.removed:
                self.removed[done.key] = done.length
        return _totals(StoredBlob(key, length, 0) for key, length in self.removed.items())


def _totals(blobs: Iterable[StoredBlob]) -> Totals:
    listed = list(blobs)
    return Totals(*(_total(listed, kind) for kind in ("binaries/", "packages/")))


def _total(blobs: list[StoredBlob], kind: str) -> BlobTotal:
    mine = [blob.length for blob in blobs if blob.key.startswith(kind)]
    return BlobTotal(len(mine), sum(mine))
