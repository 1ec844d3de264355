"""A part of a snapshot: nodes in path order, in the format of a package's body, in zstd frames.

Each frame has whole nodes, so what has not changed between two snapshots is copied as it is stored.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import zstandard

from packhorse.blobs.api import BlobCorrupt, BlobStore
from packhorse.blobs.digest import Verified
from packhorse.content.node import Node
from packhorse.packages.compression import compress, content_of, decompress_stream
from packhorse.packages.format import CHUNK_BYTES, encoded, in_chunks, messages_of, read_nodes
from packhorse.packages.limits import LIMITS, PackageCorrupt, PackageLimits, PackageRefused
from packhorse.snapshots.snapshot import Part
from packhorse.wire.node_codec import decode_path

_LONGEST_HEAD = 18  # of a zstd frame (RFC 8878, 3.1.1)


class Frame(NamedTuple):
    """Some nodes of a part, compressed by themselves, in one zstd frame or several in a row."""

    data: bytes
    content_length: int
    nodes: int


class EncodedNode(NamedTuple):
    """A node as a part has it: its path, and its message, which has it too."""

    path: str
    data: bytes

    @classmethod
    def of(cls, node: Node) -> "EncodedNode":
        """Return it of a node. Raises `PackageRefused`, `InvalidPath` or `InvalidNode`."""
        return cls(node.path, encoded(node))


def frames_of(
    nodes: Iterable[EncodedNode], limits: PackageLimits = LIMITS, *, frame_bytes: int = CHUNK_BYTES
) -> Iterator[Frame]:
    """Yield nodes, which come in path order (by bytes), in frames of `frame_bytes` or more.

    What is less than half of one goes with the frame before it, so changes leave no small ones.

    Raises:
        PackageCorrupt: the nodes are not in path order, or one comes twice.
        PackageRefused: no subscriber would load so many.
    """
    passed = _Ordered()
    held, count = b"", 0
    messages = (node.data for node in passed.nodes(nodes))
    for chunk in in_chunks(messages, limits, frame_bytes):
        if held and len(chunk) >= frame_bytes // 2:
            yield Frame(compress(held), len(held), count)
            held, count = b"", 0
        held += chunk
        count += passed.since()
    if held:
        yield Frame(compress(held), len(held), count)


def stored_frames(data: bytes, lengths: Iterable[int], nodes: int) -> Frame:
    """Return zstd frames that follow each other in a stored part, with these lengths, as one.

    Raises `PackageCorrupt` when a piece is no zstd frame.
    """
    begin = content_length = 0
    try:
        for length in lengths:
            head = data[begin : begin + _LONGEST_HEAD]
            content_length += zstandard.frame_content_size(head)
            begin += length
    except zstandard.ZstdError as error:
        raise PackageCorrupt(f"a piece of a part is no zstd frame: {error}") from error
    return Frame(data, content_length, nodes)


def nodes_of(frame: Frame, limits: PackageLimits = LIMITS) -> Iterator[EncodedNode]:
    """Yield the nodes of a frame. Raises `PackageCorrupt`, `PackageRefused` or `Undecodable`."""
    content = content_of(frame.data, frame.content_length)
    return (EncodedNode(decode_path(data), data) for data in messages_of(content, limits))


class Pieces:
    """A stream that is taken in pieces."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._source, self._chunk = iter(chunks), memoryview(b"")

    def take(self, length: int) -> bytes:
        """Return the next bytes, which are there."""
        taken: list[memoryview] = []
        while length:
            if not self._chunk:
                self._chunk = memoryview(next(self._source))
            taken.append(self._chunk[:length])
            self._chunk = self._chunk[length:]
            length -= len(taken[-1])
        return b"".join(taken)

    def end(self) -> None:
        """Take what is left, for a check of the whole comes last."""
        for _ in self._source:
            pass


def write_part(
    frames: Iterable[Frame], key: str, blobs: BlobStore, limits: PackageLimits = LIMITS
) -> Part:
    """Store frames, which come in path order, under `part_key(…)`; memory is constant.

    Storing the same frames again is a success, so a task may be repeated.

    Raises:
        PackageRefused: they have more bytes than a subscriber would load.
        BlobCorrupt: the key holds other nodes already.
        BlobStoreUnavailable: the store is away.
    """
    count = _Count(limits)
    written = blobs.put(key, count.frames(frames))
    if not written.created:
        stored = Verified(blobs.get(key), sha256=written.sha256, length=written.length)
        try:
            for _ in stored:
                pass
        except BlobCorrupt:
            raise BlobCorrupt(f"{key} holds other nodes; use a new snapshot id") from None
    return Part(key, written.sha256, written.length, count.content_length, count.nodes)


def read_part(part: Part, blobs: BlobStore, limits: PackageLimits = LIMITS) -> Iterator[Node]:
    """Yield the nodes of a part in path order; memory is constant.

    What the part promises is checked before the iterator ends, so the caller must not commit
    before that.

    Raises:
        BlobCorrupt, PackageCorrupt: digest, length, format, order or number are not as promised.
        PackageRefused: the part asks for more than `limits`.
        BlobMissing, BlobStoreUnavailable: the part can't be had now, or was removed.
        Undecodable, InvalidPath, InvalidNode: a node is none.
    """
    if part.content_length > limits.content_bytes:
        raise PackageRefused(f"{part.key} declares {part.content_length} bytes; that is too much")
    stored = Verified(blobs.get(part.key), sha256=part.sha256, length=part.length)
    passed = _Ordered()
    read = read_nodes(decompress_stream(stored, part.content_length), limits)
    yield from passed.nodes(read, at_most=part.nodes)
    if passed.count != part.nodes:
        raise PackageCorrupt(f"{part.key} holds {passed.count} nodes, not {part.nodes}")


_N = TypeVar("_N", Node, EncodedNode)


class _Ordered:
    """Counts nodes that pass, and holds them to path order."""

    def __init__(self) -> None:
        self.count = 0
        self._told = 0

    def nodes(self, nodes: Iterable[_N], *, at_most: int | None = None) -> Iterator[_N]:
        """Pass nodes on. Python compares texts as UTF-8's bytes compare."""
        last = ""
        for node in nodes:
            if node.path <= last:
                raise PackageCorrupt(f"{node.path[:80]!r} is not behind {last[:80]!r} in order")
            last = node.path
            self.count += 1
            if at_most is not None and self.count > at_most:
                raise PackageCorrupt(f"there are more than the promised {at_most} nodes")
            yield node

    def since(self) -> int:
        """Return how many have passed since the last call."""
        nodes, self._told = self.count - self._told, self.count
        return nodes


class _Count:
    """Counts what frames have that pass."""

    def __init__(self, limits: PackageLimits) -> None:
        self._most = limits.content_bytes
        self.nodes = 0
        self.content_length = 0

    def frames(self, frames: Iterable[Frame]) -> Iterator[bytes]:
        """Pass on what is stored of frames."""
        for frame in frames:
            self.nodes += frame.nodes
            self.content_length += frame.content_length
            if self.content_length > self._most:
                raise PackageRefused(f"a part has more than {self._most} bytes")
            yield frame.data
