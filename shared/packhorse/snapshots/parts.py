"""A part of a snapshot: nodes in path order, in the format of a package's body, compressed."""

from collections.abc import Iterable, Iterator

from packhorse.blobs.api import BlobCorrupt, BlobStore
from packhorse.blobs.digest import Verified
from packhorse.content.node import Node
from packhorse.packages.compression import compress_stream, decompress_stream
from packhorse.packages.format import read_nodes, write_nodes
from packhorse.packages.limits import LIMITS, PackageCorrupt, PackageLimits, PackageRefused
from packhorse.snapshots.snapshot import Part


def write_part(
    nodes: Iterable[Node], key: str, blobs: BlobStore, limits: PackageLimits = LIMITS
) -> Part:
    """Store nodes, which come in path order (by bytes), under `part_key(…)`; memory is constant.

    Storing the same nodes again is a success, so a task may be repeated.

    Raises:
        PackageCorrupt: the nodes are not in path order, or one comes twice.
        PackageRefused, InvalidPath, InvalidNode: no subscriber would load this.
        BlobCorrupt: the key holds other nodes already.
        BlobStoreUnavailable: the store is away.
    """
    count = _Count()
    content = count.bytes(write_nodes(count.nodes(nodes), limits), limits)
    written = blobs.put(key, compress_stream(content))
    if not written.created:
        stored = Verified(blobs.get(key), sha256=written.sha256, length=written.length)
        try:
            for _ in stored:
                pass
        except BlobCorrupt:
            raise BlobCorrupt(f"{key} holds other nodes; use a new snapshot id") from None
    return Part(key, written.sha256, written.length, count.content_length, count.count)


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
    count = _Count()
    yield from count.nodes(
        read_nodes(decompress_stream(stored, part.content_length), limits), at_most=part.nodes
    )
    if count.count != part.nodes:
        raise PackageCorrupt(f"{part.key} holds {count.count} nodes, not {part.nodes}")


class _Count:
    """Counts what passes, and holds it to path order."""

    def __init__(self) -> None:
        self.count = 0
        self.content_length = 0

    def nodes(self, nodes: Iterable[Node], *, at_most: int | None = None) -> Iterator[Node]:
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

    def bytes(self, chunks: Iterable[bytes], limits: PackageLimits) -> Iterator[bytes]:
        """Pass chunks on."""
        for chunk in chunks:
            self.content_length += len(chunk)
            if self.content_length > limits.content_bytes:
                raise PackageRefused(f"a part has more than {limits.content_bytes} bytes")
            yield chunk
