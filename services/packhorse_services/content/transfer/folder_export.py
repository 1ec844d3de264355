"""A part of the tree into a new folder or ZIP file: files byte by byte, nothing outside it."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol

from packhorse.blobs.api import BlobCorrupt, BlobMissing
from packhorse.content import tree
from packhorse.content.node import ROOT, Binary, InvalidPath, Node, check_path
from packhorse_services.content.transfer.counting import (
    ImportCounts,
    TransferCounter,
    TransferWatcher,
)
from packhorse_services.content.transfer.folder_import import DATA, FILE
from packhorse_services.content.transfer.refusals import NothingThere
from packhorse_services.content.transfer.sources import SMALL_BYTES
from packhorse_services.content.transfer.targets import ContentTarget

_THREADS = 4
_GROUP_FILES = 500
_GROUP_BYTES = 8 * 1024 * 1024
_WAITING = 6
UNWRITABLE = (OSError, ValueError, BlobMissing, BlobCorrupt, InvalidPath)
"""What keeps one node from being written, and no other."""

Contents = Mapping[str, bytes | Exception]


class ExportTree(Protocol):
    """A tree that can be read."""

    def nodes(self, path: str) -> AbstractContextManager[Iterator[Node]]:
        """Lend a node and all below it, in the order of their paths."""
        ...

    def contents(self, binaries: Sequence[Binary]) -> Contents:
        """Return small binaries by their SHA-256, or why not; is called by several threads."""
        ...

    def stream(self, binary: Binary) -> Iterator[bytes]:
        """Yield a binary's bytes, verified by the time that the last one comes."""
        ...


class FolderExport:
    """One export, of which `watcher` is told as it goes on.

    A node with the binary `data` becomes a file, every other node a folder. What a node holds more
    than that has no place in a folder: it is reported, and counts as skipped.
    """

    def __init__(self, origin: ExportTree, target: ContentTarget, watcher: TransferWatcher) -> None:
        self._origin, self._target, self._counter = origin, target, TransferCounter(watcher)
        self._group: dict[str, tuple[Sequence[str], Binary]] = {}
        self._waiting: deque[tuple[dict[str, tuple[Sequence[str], Binary]], Future[Contents]]]
        self._waiting = deque()
        self._size = 0

    def run(self, path: str) -> ImportCounts:
        """Export the subtree of `path`. Raises `NothingThere`, and what origin and target raise."""
        base = check_path(path)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="export") as workers:
            try:
                with self._origin.nodes(base) as nodes:
                    for node in nodes:
                        self._take(node, base, workers)
                self._send(workers)
                self._finish(0)
            finally:
                workers.shutdown(cancel_futures=True)
        if self._counter.is_empty:
            raise NothingThere(f"there is nothing at {path!r}")
        return self._counter.counts

    def _take(self, node: Node, base: str, workers: ThreadPoolExecutor) -> None:
        """Make the folder, or have the file written; what lies above it has come before it."""
        data = next((binary for binary in node.binaries if binary.name == DATA), None)
        if left := _left_out(node):
            self._counter.skip(node.path, left)
        try:
            names = _names(node.path, base, is_file=data is not None)
            if data is None:
                self._target.folder(names)
                self._counter.counts.folders += 1
            elif data.length > SMALL_BYTES:
                self._write(names, data, self._origin.stream(data))
        except UNWRITABLE as error:
            self._counter.refuse(node.path, str(error))
            return
        if data is not None and data.length <= SMALL_BYTES:
            self._group[node.path] = names, data
            self._size += data.length
            if len(self._group) >= _GROUP_FILES or self._size >= _GROUP_BYTES:
                self._send(workers)
                self._finish(_WAITING)

    def _send(self, workers: ThreadPoolExecutor) -> None:
        group, self._group, self._size = self._group, {}, 0
        binaries = list({data.sha256: data for _, data in group.values()}.values())
        if binaries:
            self._waiting.append((group, workers.submit(self._origin.contents, binaries)))

    def _finish(self, left: int) -> None:
        """Write until at most `left` groups are being read."""
        while len(self._waiting) > left:
            group, reading = self._waiting.popleft()
            contents = reading.result()
            for path, (names, data) in group.items():
                content = contents[data.sha256]
                try:
                    if isinstance(content, Exception):
                        raise content
                    self._write(names, data, iter((content,)))
                except UNWRITABLE as error:
                    self._counter.refuse(path, str(error))
            self._counter.report()

    def _write(self, names: Sequence[str], data: Binary, chunks: Iterator[bytes]) -> None:
        self._target.file(names, data.length, chunks)
        self._counter.counts.files += 1
        self._counter.counts.bytes += data.length


def _names(path: str, base: str, *, is_file: bool) -> Sequence[str]:
    """Return where a node goes, which is inside the target whatever its path says."""
    if path == ROOT:
        return ()
    names = check_path(path)[len(base.rstrip("/")) :].split("/")[1:]
    return (base.rpartition("/")[2],) if not names and is_file else names


def _left_out(node: Node) -> str:
    """Say what of a node has no place in a folder, or nothing."""
    binaries = [binary.name for binary in node.binaries]
    plain = FILE if DATA in binaries else tree.FOLDER
    others = [name for name in binaries if name != DATA]
    parts = [f"its type {node.type!r}"] if node.type != plain else []
    parts += ["its properties"] if node.properties != "{}" else []
    parts += [f"its binary {name!r}" for name in others]
    return f"{' and '.join(parts)}, which a {plain} can't hold" if parts else ""
