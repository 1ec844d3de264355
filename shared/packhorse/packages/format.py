"""Nodes to the uncompressed bytes of a body and back, node by node in constant memory.

Each node is one protobuf message behind its length as a varint (ADR 0006). Both directions hold
the same limits, so that nothing is accepted at the author which a subscriber would refuse.
"""

import re
from collections.abc import Iterable, Iterator

from packhorse.content.json_limits import check_exponents
from packhorse.content.node import Binary, InvalidNode, Node, check_path, has_control
from packhorse.packages.limits import LIMITS, PackageCorrupt, PackageLimits, PackageRefused
from packhorse.wire.node_codec import BinaryRecord, NodeRecord, decode_node, encode_node

_CHUNK_BYTES = 128 * 1024
_VARINT_BYTES = 5
_MEDIA_TYPE = re.compile(r"[\x21-\x7e][\x20-\x7e]*")
"""As the content API has it: it goes into a header when the binary is served."""


def write_nodes(nodes: Iterable[Node], limits: PackageLimits = LIMITS) -> Iterator[bytes]:
    """Yield the body's bytes in chunks of whole nodes, which end once they have 128 KiB.

    Raises as `encoded` does.
    """
    return in_chunks((encoded(node, limits) for node in nodes), limits)


def encoded(node: Node, limits: PackageLimits = LIMITS) -> bytes:
    """Return a node's message. Raises `PackageRefused`, `InvalidNode` or `InvalidPath`."""
    record = _record(node)
    _check(record, limits)
    data = encode_node(record)
    if len(data) > limits.node_bytes:
        raise _too_large(record.path, len(data), limits)
    return data


def in_chunks(messages: Iterable[bytes], limits: PackageLimits = LIMITS) -> Iterator[bytes]:
    """Yield what `write_nodes` does of nodes' messages. Raises `PackageRefused` for too many."""
    parts: list[bytes] = []
    size = 0
    for number, data in enumerate(messages, 1):
        if number > limits.nodes:
            raise _too_many(limits)
        parts += (_varint(len(data)), data)
        size += len(data)
        if size >= _CHUNK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def read_nodes(chunks: Iterable[bytes], limits: PackageLimits = LIMITS) -> Iterator[Node]:
    """Yield the nodes of a body's bytes.

    Raises:
        PackageCorrupt: the bytes are no sequence of whole nodes.
        PackageRefused: a limit is passed; nothing beyond it was read.
        Undecodable, InvalidPath, InvalidNode: a node is none.
    """
    return (decoded(data, limits) for data in messages_of(chunks, limits))


def messages_of(chunks: Iterable[bytes], limits: PackageLimits = LIMITS) -> Iterator[bytes]:
    """Yield the nodes' messages. Raises `PackageCorrupt` and `PackageRefused` as `read_nodes`."""
    source = _Source(chunks)
    number = 0
    while (size := source.take_varint()) is not None:
        number += 1
        if number > limits.nodes:
            raise _too_many(limits)
        if size > limits.node_bytes:
            raise _too_large(f"node {number}", size, limits)
        yield source.take(size)


def decoded(data: bytes, limits: PackageLimits = LIMITS) -> Node:
    """Return the node of a message. Raises as `read_nodes` does."""
    record = decode_node(data)
    _check(record, limits)
    return _node(record)


def _record(node: Node) -> NodeRecord:
    return NodeRecord(
        node.path,
        node.type,
        node.properties.encode(),
        [
            BinaryRecord(
                binary.name, bytes.fromhex(binary.sha256), binary.length, binary.media_type
            )
            for binary in node.binaries
        ],
    )


def _node(record: NodeRecord) -> Node:
    try:
        properties = record.properties.decode()
    except UnicodeDecodeError as error:
        raise InvalidNode(f"properties of {record.path!r} are not UTF-8") from error
    check_exponents(record.properties)
    if not record.binaries:
        return Node(record.path, record.type, properties)
    binaries = tuple(
        Binary(binary.name, binary.sha256.hex(), binary.length, binary.media_type)
        for binary in record.binaries
    )
    return Node(record.path, record.type, properties, binaries)


def _too_large(what: str, size: int, limits: PackageLimits) -> PackageRefused:
    return PackageRefused(f"{what} has {size} bytes; {limits.node_bytes} are allowed")


def _too_many(limits: PackageLimits) -> PackageRefused:
    return PackageRefused(f"the package has more than {limits.nodes} nodes; split it")


def _check(record: NodeRecord, limits: PackageLimits) -> None:
    path = check_path(record.path)
    if path.count("/") > limits.depth:
        raise PackageRefused(f"{path[:80]!r}… is deeper than {limits.depth} segments")
    if not record.type or len(record.type) > limits.name_bytes:
        raise InvalidNode(f"{path!r} needs a type of 1 to {limits.name_bytes} characters")
    if not record.type.isprintable() and has_control(record.type):  # the first is the cheaper one
        raise InvalidNode(f"the type of {path!r} holds a control character; leave it out")
    if len(record.properties) > limits.properties_bytes:
        raise PackageRefused(
            f"the properties of {path[:80]!r} take {len(record.properties)} bytes; "
            f"{limits.properties_bytes} are allowed: put what is large into a binary"
        )
    if record.binaries:
        _check_binaries(record, limits)


def _check_binaries(record: NodeRecord, limits: PackageLimits) -> None:
    if len(record.binaries) > limits.binaries:
        raise PackageRefused(
            f"{record.path!r} has {len(record.binaries)} binaries; {limits.binaries} are allowed"
        )
    if len({binary.name for binary in record.binaries}) != len(record.binaries):
        raise InvalidNode(f"{record.path!r} has two binaries of one name")
    for binary in record.binaries:
        if len(binary.sha256) != 32 or binary.length < 0 or not binary.name:
            raise InvalidNode(f"binary {binary.name[:80]!r} of {record.path!r} is no reference")
        if max(len(binary.name), len(binary.media_type)) > limits.name_bytes:
            raise PackageRefused(f"a binary of {record.path!r} has too long a name or media type")
        if has_control(binary.name) or not _MEDIA_TYPE.fullmatch(binary.media_type):
            raise InvalidNode(
                f"binary {binary.name[:80]!r} of {record.path!r} has a control character in its "
                "name, or a media type that is none"
            )


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


class _Source:
    """Takes exact numbers of bytes from a stream of chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._chunk = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes. Raises `PackageCorrupt` when there are fewer."""
        end = self._at + count
        if end <= len(self._chunk):
            data = self._chunk[self._at : end]
            self._at = end
            return data
        parts = [self._chunk[self._at :]]
        missing = end - len(self._chunk)
        while missing > 0:
            if not self._next_chunk():
                raise PackageCorrupt("the body ends inside a node")
            self._at = min(missing, len(self._chunk))
            parts.append(self._chunk[: self._at])
            missing -= self._at
        return b"".join(parts)

    def take_varint(self) -> int | None:
        """Return the next varint, or None at the end of the stream."""
        if self._at == len(self._chunk) and not self._next_chunk():
            return None
        chunk, at = self._chunk, self._at
        if chunk[at] < 0x80:
            self._at = at + 1
            return chunk[at]
        if at + 1 < len(chunk) and chunk[at + 1] < 0x80:  # of nearly all nodes
            self._at = at + 2
            return chunk[at] & 0x7F | chunk[at + 1] << 7
        return self._take_long_varint()

    def _take_long_varint(self) -> int:
        value = 0
        for position in range(_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                return value
        raise PackageCorrupt("the length of a node is no varint of at most 5 bytes")

    def _next_chunk(self) -> bool:
        for chunk in self._chunks:
            if chunk:
                self._chunk, self._at = chunk, 0
                return True
        self._chunk, self._at = b"", 0
        return False
