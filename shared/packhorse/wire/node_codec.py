"""Nodes of a package body to bytes and back, one message each, as plain records.

The wire knows no content model: who packs and unpacks turns these records into nodes. What is
decoded is untrusted (R30); the decoder raises `Undecodable` and nothing else.
"""

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from packhorse.wire.record import Undecodable
from packhorse.wire.v1 import package_pb2

_PATH_TAG = b"\x0a"  # field 1, of a length that follows as a varint


class BinaryRecord(NamedTuple):
    """A reference to a binary; `sha256` is the raw digest."""

    name: str
    sha256: bytes
    length: int
    media_type: str


class NodeRecord(NamedTuple):
    """A node as it travels; `properties` is the UTF-8 text of a JSON object."""

    path: str
    type: str
    properties: bytes
    binaries: Sequence[BinaryRecord] = ()


def encode_node(record: NodeRecord) -> bytes:
    """Encode one node."""
    wire = package_pb2.Node(path=record.path, type=record.type, properties_json=record.properties)
    for name, sha256, length, media_type in record.binaries:
        wire.binaries.add(name=name, sha256=sha256, length=length, media_type=media_type)
    return wire.SerializeToString()


def decode_node(value: bytes) -> NodeRecord:
    """Decode one node. Raises `Undecodable`."""
    wire = _parsed(value)
    return NodeRecord(wire.path, wire.type, wire.properties_json, _binaries(wire))


def encode_removal(path: str) -> bytes:
    """Encode a path that has no node any more: a node without anything else."""
    return package_pb2.Node(path=path).SerializeToString()


def decode_removal(value: bytes) -> str | None:
    """Return the path of `encode_removal`, None for what is longer. Raises `Undecodable`."""
    return decode_path(value) if len(value) == _behind_path(value) else None


def decode_path(value: bytes) -> str:
    """Return the path alone, without making a record of the node. Raises `Undecodable`."""
    return _parsed(value).path


def _behind_path(value: bytes) -> int:
    """Return where the path ends that a message begins with; -1 where it is none, or very long."""
    if value[:1] != _PATH_TAG or len(value) < 3:
        return -1
    first, second = value[1], value[2]
    if first < 0x80:
        return 2 + first
    return 3 + (first & 0x7F | second << 7) if second < 0x80 else -1


def _parsed(value: bytes) -> package_pb2.Node:
    try:
        return package_pb2.Node.FromString(value)
    except (DecodeError, ValueError) as error:
        raise Undecodable(f"the record's bytes are no Node: {error}") from error


def _binaries(wire: package_pb2.Node) -> list[BinaryRecord]:
    if not (given := wire.binaries):
        return []
    return [BinaryRecord(one.name, one.sha256, one.length, one.media_type) for one in given]
