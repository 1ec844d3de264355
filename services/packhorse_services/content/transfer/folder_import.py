"""A folder or archive into a tree: many threads read and store, batch after batch.

A batch's binaries are durable before the nodes that refer to them, and a file whose node says the
same already costs nothing but being read: an import that was killed is run again.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from packhorse.content.node import ROOT, InvalidPath, Node, check_path
from packhorse_services.content.transfer.counting import (
    ImportCounts,
    TransferCounter,
    TransferWatcher,
)
from packhorse_services.content.transfer.sources import (
    SMALL_BYTES,
    ContentSource,
    NotImportable,
    SourceEntry,
)

FILE = "file"
DATA = "data"
"""The binary that holds a file's bytes."""

_THREADS = 4
_BATCH_FILES = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_PATH_BYTES = 384 * 1024
"""A batch is one request of 1 MiB; JSON doubles a quote and a backslash."""


@dataclass(slots=True)
class ImportBatch:
    """Files and folders by their paths; the small files fit into memory."""

    files: dict[str, SourceEntry] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Stored:
    """What has become of the files of a batch, and what is left to be written."""

    files: int = 0
    unchanged: int = 0
    bytes: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


class Destination(Protocol):
    """A tree that takes batches."""

    def read_existing(self, batch: ImportBatch) -> Any:
        """Return what `store` has to know; is called by one thread."""
        ...

    def store(self, batch: ImportBatch, known: Any) -> Stored:
        """Store the bytes of a batch; is called by several threads."""
        ...

    def finish(self, batch: ImportBatch, stored: Stored) -> None:
        """Write what is left of a batch; is called by one thread, in the order of the batches."""
        ...


class FolderImport:
    """One import, of which `watcher` is told after each batch."""

    def __init__(self, destination: Destination, at: str, watcher: TransferWatcher) -> None:
        """Raise `InvalidPath` for an `at` that is no path."""
        self._to, self._base = destination, "" if at == ROOT else check_path(at)
        self._counter = TransferCounter(watcher)

    def run(self, source: ContentSource) -> ImportCounts:
        """Import everything. Raises what the destination raises."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="import") as workers:
            waiting: deque[tuple[ImportBatch, Future[Stored]]] = deque()
            try:
                for batch in self._batches(source.entries()):
                    known = self._to.read_existing(batch)
                    waiting.append((batch, workers.submit(self._to.store, batch, known)))
                    if len(waiting) >= 2 * _THREADS:
                        self._finish(*waiting.popleft())
                while waiting:
                    self._finish(*waiting.popleft())
            finally:
                workers.shutdown(cancel_futures=True)
        return self._counter.counts

    def _batches(self, entries: Iterable[SourceEntry]) -> Iterator[ImportBatch]:
        """Group entries whose names are paths; a batch's small files fit into memory."""
        yield ImportBatch(folders=[self._base] if self._base else [])
        batch, size, named = ImportBatch(), 0, 0
        for entry in entries:
            path = self._admit(entry)
            if path is None:
                continue
            named += len(path.encode())
            if entry.open is None:
                batch.folders.append(path)
            else:
                batch.files[path] = entry
                size += min(entry.size, SMALL_BYTES)
            full = len(batch.files) + len(batch.folders) >= _BATCH_FILES
            if full or size >= _BATCH_BYTES or named >= _BATCH_PATH_BYTES:
                yield batch
                batch, size, named = ImportBatch(), 0, 0
        yield batch

    def _admit(self, entry: SourceEntry) -> str | None:
        """Return the node's path, or None once the reason was reported."""
        if entry.skipped:
            self._counter.skip(entry.name, entry.skipped)
            return None
        try:
            if entry.problem:
                raise NotImportable(entry.problem)
            return check_path(f"{self._base}/{entry.name}")
        except (NotImportable, InvalidPath) as error:
            self._counter.refuse(entry.name, str(error))
            return None

    def _finish(self, batch: ImportBatch, storing: Future[Stored]) -> None:
        """Wait for a batch, have it written, and count."""
        stored = storing.result()
        self._to.finish(batch, stored)
        counts = self._counter.counts
        counts.files += stored.files
        counts.bytes += stored.bytes
        counts.unchanged += stored.unchanged
        counts.folders += len(batch.folders)
        for name, reason in stored.refused:
            self._counter.refuse(name, reason)
        self._counter.report()
