"""The body of a package: inline up to 819,200 bytes, else a blob; verified on the way in (R7)."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packhorse.blobs.api import BlobCorrupt, BlobStore, package_key
from packhorse.blobs.digest import Verified, holds_what_was_put
from packhorse.content.node import Node
from packhorse.packages.compression import (
    AT_ONCE_BYTES,
    compress,
    compress_stream,
    content_of,
    decompress_stream,
)
from packhorse.packages.format import read_nodes, write_nodes
from packhorse.packages.limits import (
    INLINE_BYTES,
    LIMITS,
    PackageCorrupt,
    PackageLimits,
    PackageRefused,
)
from packhorse.wire.messages import PackageBody, PackageMessage


@dataclass(frozen=True, slots=True)
class PackedBody:
    """A body ready for its message; `length` is its size as stored, in bytes."""

    body: PackageBody
    length: int
    node_count: int
    stored_key: str | None = None


def pack(
    nodes: Iterable[Node],
    package_id: str,
    blobs: BlobStore,
    limits: PackageLimits = LIMITS,
    *,
    inline_bytes: int = INLINE_BYTES,
) -> PackedBody:
    """Turn nodes into a body, and store it under `package_key(package_id)` if it is large.

    That is, larger than `inline_bytes`, or one that unpacks to more than an inline body may: with
    0 every body is stored, even that of no nodes.
    Memory is constant whatever the size. Raises `PackageRefused` for what no subscriber would
    import, `BlobStoreUnavailable`, and whatever `nodes` raises; then nothing stays behind.
    """
    meter = BodyMeter(limits)
    chunks = meter.content(nodes)
    head = list(_up_to(chunks, AT_ONCE_BYTES))
    if meter.length <= AT_ONCE_BYTES:
        frame: Iterator[bytes] = iter([compress(b"".join(head))])
    else:
        frame = compress_stream(itertools.chain(head, chunks))
    start = list(_up_to(frame, inline_bytes))
    length = sum(map(len, start))
    if length <= inline_bytes and meter.length <= limits.most_inline(length):
        inline = b"".join(start)
        body = PackageBody(hashlib.sha256(inline).digest(), meter.length, inline=inline)
        return PackedBody(body, len(inline), meter.count)
    return _store(itertools.chain(start, frame), package_key(package_id), blobs, meter)


def _store(frame: Iterator[bytes], key: str, blobs: BlobStore, meter: "BodyMeter") -> PackedBody:
    written = blobs.put(key, frame)
    if not holds_what_was_put(blobs, written):
        raise BlobCorrupt(f"{key} holds another body already; use a new package id")
    body = PackageBody(bytes.fromhex(written.sha256), meter.length, reference=key)
    return PackedBody(body, written.length, meter.count, stored_key=key)


def unpack(
    message: PackageMessage, blobs: BlobStore, limits: PackageLimits = LIMITS
) -> Iterator[Node]:
    """Yield the nodes of a package; none when it has no body.

    Memory is constant whatever the size. The digest is checked before the last node is out, so
    the caller must not commit before the iterator has ended.

    Raises:
        PackageCorrupt, BlobCorrupt: digest, length or format are wrong.
        PackageRefused: the package is larger than `limits`, or refers to no blob of its own.
        BlobMissing, BlobStoreUnavailable: the body is not there, or not yet.
        Undecodable, InvalidPath, InvalidNode: a node is none.
    """
    body = message.body
    if body is None:
        return
    _check_length(body, limits)
    if body.inline is not None:
        yield from read_nodes(_inline(body, body.inline), limits)
        return
    length = message.entry.body_length
    stored = Verified(blobs.get(_own_key(message)), sha256=body.sha256.hex(), length=length)
    yield from read_nodes(decompress_stream(stored, body.content_length), limits)


def unpack_ahead(message: PackageMessage) -> int:
    """Do of `unpack` what needs no blob and little memory; return the bytes that are kept for it.

    That is, verify and decompress an inline body of up to 1 MiB. Raises as `unpack` does.
    """
    body = message.body
    if body is None or body.inline is None or body.content_length > AT_ONCE_BYTES:
        return 0
    _check_length(body, LIMITS)
    body.content = b"".join(_inline(body, body.inline))
    return body.content_length


def _check_length(body: PackageBody, limits: PackageLimits) -> None:
    """Raise `PackageRefused` for a package that declares more bytes than it may unpack to."""
    if not 0 <= body.content_length <= limits.content_bytes:
        raise PackageRefused(
            f"the package declares {body.content_length} bytes; {limits.content_bytes} are allowed "
            "(PACKHORSE_MAX_PACKAGE_BYTES)"
        )
    if body.inline is None:
        return
    if body.content_length > limits.most_inline(len(body.inline)):
        raise PackageRefused(
            f"the package declares {body.content_length} bytes for an inline body of "
            f"{len(body.inline)}; no publisher packs so much into so little"
        )


def _inline(body: PackageBody, inline: bytes) -> Iterable[bytes]:
    if body.content is not None:
        return [body.content]
    if hashlib.sha256(inline).digest() != body.sha256:
        raise PackageCorrupt("the body's SHA-256 is not the one that the package declares")
    return content_of(inline, body.content_length)


def _own_key(message: PackageMessage) -> str:
    """Return the blob's key: made from the id, so that a reference leads nowhere else."""
    key = package_key(message.entry.package_id)
    if message.body is None or message.body.reference != key:
        raise PackageRefused("the package refers to a blob that is not its own")
    return key


def _up_to(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield chunks until they are more than `size` bytes, or all of them when they never are."""
    seen = 0
    for chunk in chunks:
        seen += len(chunk)
        yield chunk
        if seen > size:
            return


class BodyMeter:
    """Counts what passes: nodes on their way in, bytes on their way to compression."""

    def __init__(self, limits: PackageLimits) -> None:
        self._limits = limits
        self.count = 0
        self.length = 0

    def content(self, nodes: Iterable[Node]) -> Iterator[bytes]:
        """Yield what the body of these nodes has. Raises `PackageRefused` beyond the limits."""
        limits = self._limits
        for chunk in write_nodes(self._counted(nodes), limits):
            self.length += len(chunk)
            if self.length > limits.content_bytes:
                raise PackageRefused(
                    f"the package has more than {limits.content_bytes} bytes; distribute its "
                    "subtrees one by one, or raise PACKHORSE_MAX_PACKAGE_BYTES here and at every "
                    "subscriber"
                )
            yield chunk

    def _counted(self, nodes: Iterable[Node]) -> Iterator[Node]:
        for node in nodes:
            self.count += 1
            yield node
