"""Parts of snapshots: nodes in path order, in the format of a package's body, and their changes.

What has changed in a part since it was stored is a file of its own, as small as that is. In it a
path that has no node any more is a message of that path alone.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from packhorse.blobs.api import BlobCorrupt, BlobStore
from packhorse.blobs.digest import Verified, holds_what_was_put
from packhorse.content.node import Node, check_path
from packhorse.packages.compression import compress, decompress_stream
from packhorse.packages.format import decoded, encoded, in_chunks, messages_of
from packhorse.packages.limits import LIMITS, PackageCorrupt, PackageLimits, PackageRefused
from packhorse.snapshots.snapshot import Part, PartChanges, PartFile
from packhorse.wire.node_codec import decode_path, decode_removal, encode_removal


class _HasPath(Protocol):
    @property
    def path(self) -> str: ...


_N = TypeVar("_N", bound=_HasPath)


class Change(NamedTuple, Generic[_N]):
    """What is at a path now; None: nothing any more."""

    path: str
    now: _N | None


class EncodedNode(NamedTuple):
    """A node as a part has it: its path, and its message, which has it too."""

    path: str
    data: bytes

    @classmethod
    def of(cls, node: Node) -> "EncodedNode":
        """Return it of a node. Raises `PackageRefused`, `InvalidPath` or `InvalidNode`."""
        return cls(node.path, encoded(node))


def merged(before: Iterable[_N], changes: Iterable[Change[_N]]) -> Iterator[_N]:
    """Yield what nodes are after changes; both come in path order, each path once."""
    waiting = iter(changes)
    change = next(waiting, None)
    for node in before:
        while change is not None and change.path < node.path:
            if change.now is not None:
                yield change.now
            change = next(waiting, None)
        if change is None or change.path != node.path:
            yield node
    while change is not None:
        if change.now is not None:
            yield change.now
        change = next(waiting, None)


def write_part(nodes: Iterable[EncodedNode], key: str, blobs: BlobStore) -> Part:
    """Store nodes, which come in path order (by bytes), under `part_key(…)`; memory is constant.

    Storing the same nodes again is a success, so a task may be repeated.

    Raises:
        PackageCorrupt: they are not in path order, or one comes twice.
        PackageRefused: no subscriber would load so much.
        BlobCorrupt: the key holds other nodes already.
        BlobStoreUnavailable: the store is away.
    """
    passed = _Passed()
    sha256, length = _stored(passed.frames(nodes), key, blobs)
    return Part(key, sha256, length, passed.content_length, passed.entries)


def write_changes(
    part: Part,
    changes: Iterable[Change[EncodedNode]],
    nodes: int,
    key: str,
    blobs: BlobStore,
) -> Part:
    """Store all that has changed in a part since it was stored, and return it with that.

    With these changes, which come in path order, it has so many `nodes`. Raises as `write_part`
    does.
    """
    since_ms = part.changes.since_ms if part.changes else blobs.now_ms()
    messages = (
        change.now or EncodedNode(change.path, encode_removal(change.path)) for change in changes
    )
    passed = _Passed()
    sha256, length = _stored(passed.frames(messages), key, blobs)
    numbers = (passed.content_length, passed.entries, nodes, since_ms)
    return replace(part, changes=PartChanges(key, sha256, length, *numbers))


def read_part(part: Part, blobs: BlobStore, limits: PackageLimits = LIMITS) -> Iterator[Node]:
    """Yield the nodes of a part, with its changes, in path order; memory is constant.

    What the part promises is checked before the iterator ends, so the caller must not commit
    before that.

    Raises:
        BlobCorrupt, PackageCorrupt: digest, length, format, order or number are not as promised.
        PackageRefused: the part asks for more than `limits`.
        BlobMissing, BlobStoreUnavailable: the part can't be had now, or was removed.
        Undecodable, InvalidPath, InvalidNode: a node is none.
    """
    return _nodes(part, blobs, limits, lambda data: decoded(data, limits))


def read_encoded(part: Part, blobs: BlobStore) -> Iterator[EncodedNode]:
    """Yield the same as messages, of which only the paths are read. Raises as `read_part` does."""
    return _nodes(part, blobs, LIMITS, _encoded)


def read_changes(changes: PartChanges, blobs: BlobStore) -> Iterator[Change[EncodedNode]]:
    """Yield what has changed in a part, in path order. Raises as `read_part` does."""
    return _changes(changes, blobs, LIMITS, _encoded)


def changes_of(messages: Iterable[bytes]) -> Iterator[Change[Node]]:
    """Yield the nodes, and the paths without one, of the messages of any file of a part.

    Raises `Undecodable`, `InvalidPath`, `InvalidNode` or `PackageRefused`.
    """
    return (_change(data, decoded) for data in messages)


def _nodes(
    part: Part, blobs: BlobStore, limits: PackageLimits, decode: Callable[[bytes], _N]
) -> Iterator[_N]:
    nodes = _ordered(map(decode, _messages(part, blobs, limits)), part.key, part.nodes)
    if part.changes is None:
        yield from nodes
        return
    after = merged(nodes, _changes(part.changes, blobs, limits, decode))
    yield from _ordered(after, f"{part.key} with its changes", part.held)


def _changes(
    changes: PartChanges, blobs: BlobStore, limits: PackageLimits, decode: Callable[[bytes], _N]
) -> Iterator[Change[_N]]:
    messages = _messages(changes, blobs, limits)
    return _ordered((_change(data, decode) for data in messages), changes.key, changes.entries)


def _change(data: bytes, decode: Callable[[bytes], _N]) -> Change[_N]:
    removed = decode_removal(data)
    if removed is not None:
        return Change(check_path(removed), None)
    node = decode(data)
    return Change(node.path, node)


def _encoded(data: bytes) -> EncodedNode:
    return EncodedNode(decode_path(data), data)


def _messages(file: PartFile, blobs: BlobStore, limits: PackageLimits) -> Iterator[bytes]:
    if file.content_length > limits.content_bytes:
        raise PackageRefused(f"{file.key} declares {file.content_length} bytes; that is too much")
    stored = Verified(blobs.get(file.key), sha256=file.sha256, length=file.length)
    return messages_of(decompress_stream(stored, file.content_length), limits)


def _ordered(entries: Iterable[_N], key: str, promised: int) -> Iterator[_N]:
    """Pass on what comes in path order, and as many as promised.

    Python compares texts as UTF-8's bytes compare.
    """
    last, count = "", 0
    for one in entries:
        _require_behind(one.path, last)
        last = one.path
        count += 1
        if count > promised:
            raise PackageCorrupt(f"{key} holds more than the promised {promised} nodes")
        yield one
    if count != promised:
        raise PackageCorrupt(f"{key} holds {count} nodes, not {promised}")


def _require_behind(path: str, last: str) -> None:
    if path <= last:
        raise PackageCorrupt(f"{path[:80]!r} is not behind {last[:80]!r} in order")


def _stored(frames: Iterable[bytes], key: str, blobs: BlobStore) -> tuple[str, int]:
    """Store a file, or see that it is there already; return its digest and length."""
    written = blobs.put(key, frames)
    if not holds_what_was_put(blobs, written):
        raise BlobCorrupt(f"{key} holds other nodes; use a new snapshot id")
    return written.sha256, written.length


class _Passed:
    """Packs what passes, and counts it."""

    def __init__(self) -> None:
        self.entries = 0
        self.content_length = 0

    def frames(self, entries: Iterable[EncodedNode]) -> Iterator[bytes]:
        """Yield what is stored of entries, which come in path order: zstd frames."""
        for chunk in in_chunks(self._messages(entries)):
            self.content_length += len(chunk)
            if self.content_length > LIMITS.content_bytes:
                raise PackageRefused(f"a part has more than {LIMITS.content_bytes} bytes")
            yield compress(chunk)

    def _messages(self, entries: Iterable[EncodedNode]) -> Iterator[bytes]:
        last = ""
        for path, data in entries:
            _require_behind(path, last)
            last = path
            self.entries += 1
            yield data
