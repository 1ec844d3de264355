"""Packages to record headers and bytes, and back.

What comes from the journal is untrusted (R30): the decoders raise `Undecodable` and nothing else,
and spend no memory beyond a small multiple of the record.
"""

import hashlib
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

from google.protobuf.message import DecodeError

from packhorse.wire.messages import Action, PackageBody, PackageEntry, PackageMessage
from packhorse.wire.record import (
    TYPE_HEADER,
    VERSION_HEADER,
    Encoded,
    Undecodable,
    expect,
    parse,
    type_headers,
)
from packhorse.wire.v1 import package_pb2

ENTRY_HEADER = "entry"
PACKAGE_ID_HEADER = "package-id"
AGENT_HEADER = "publisher-agent"
DIGEST_HEADER = "record-sha256"

MAX_PRODUCER = 255
"""Characters of a producer's name, as where publishers number their messages."""

_DIGESTED = (TYPE_HEADER, VERSION_HEADER, PACKAGE_ID_HEADER, AGENT_HEADER, ENTRY_HEADER)
_DIGEST_OF = b"%d:%b" * len(_DIGESTED) + b"%b"


def encode_package(message: PackageMessage) -> Encoded:
    """Encode a package; its headers let a reader choose and list it without the body.

    One of them is a digest over the others and the value (R32).
    """
    entry = message.entry
    wire = package_pb2.PackageMessage(
        publisher_instance=message.publisher_instance,
        package_type=message.package_type,
        metadata=dict(message.metadata),
    )
    _fill_entry(wire, entry)
    if message.body is not None:
        wire.body_sha256 = message.body.sha256
        wire.content_length = message.body.content_length
        if message.body.inline is not None:
            wire.body_inline = message.body.inline
        else:
            wire.body_reference = message.body.reference or ""
    headers = {
        **type_headers(PackageMessage),
        PACKAGE_ID_HEADER: entry.package_id.encode(),
        AGENT_HEADER: entry.publisher_agent.encode(),
        ENTRY_HEADER: encode_entry(entry),
    }
    value = wire.SerializeToString()
    headers[DIGEST_HEADER] = _digest(headers, value)
    return Encoded(headers, value)


def _digest(headers: Mapping[str, bytes], value: bytes) -> bytes:
    """Return the SHA-256 of the headers above and the value, each behind its length."""
    a, b, c, d, e = [headers.get(name, b"") for name in _DIGESTED]
    parts = (len(a), a, len(b), b, len(c), c, len(d), d, len(e), e, value)
    return hashlib.sha256(_DIGEST_OF % parts).digest()


def encode_entry(entry: PackageEntry) -> bytes:
    """Encode what a queue shows of a package, for the `entry` header."""
    wire = package_pb2.PackageEntry()
    _fill_entry(wire, entry)
    return wire.SerializeToString()


def _fill_entry(
    wire: package_pb2.PackageMessage | package_pb2.PackageEntry, entry: PackageEntry
) -> None:
    wire.publisher_agent = entry.publisher_agent
    wire.package_id = entry.package_id
    wire.action = package_pb2.Action.Value(entry.action.value)
    wire.paths.extend(entry.paths)
    wire.deep_paths.extend(entry.deep_paths)
    wire.user = entry.user
    wire.producer = entry.producer
    wire.epoch = entry.epoch
    wire.sequence = entry.sequence
    wire.body_length = entry.body_length
    wire.node_count = entry.node_count
    wire.accepted_ms = entry.accepted_ms
    wire.range_from = entry.range_from
    wire.range_to = entry.range_to
    wire.targets.extend(entry.targets)


_ENTRY_FIELDS = attrgetter(
    *("package_id", "publisher_agent", "action", "paths", "deep_paths", "user", "producer"),
    *("epoch", "sequence", "body_length", "node_count", "accepted_ms", "range_from", "range_to"),
    "targets",
)
"""In the order of `PackageEntry`; all in one call, which costs a third of one call each."""


def _read_entry(wire: package_pb2.PackageMessage | package_pb2.PackageEntry) -> PackageEntry:
    package_id, agent, number, paths, deep_paths, *rest, targets = _ENTRY_FIELDS(wire)
    rest.append(tuple(targets) if targets else ())
    return PackageEntry(package_id, agent, _action(number), tuple(paths), tuple(deep_paths), *rest)


def _action(number: int) -> Action:
    action = _ACTIONS.get(number)
    if action is None:
        raise Undecodable(f"unknown action {number}; upgrade this build")
    return action


def decode_entry(headers: Mapping[str, bytes]) -> PackageEntry:
    """Decode the `entry` header of a package record. Raises `Undecodable`."""
    wire = package_pb2.PackageEntry()
    parse(wire, headers.get(ENTRY_HEADER, b""))
    return _read_entry(wire)


def has_entry(headers: Mapping[str, bytes], value: bytes) -> bool:
    """Return whether the `entry` header of a package says what its value says.

    The value is one that `decode_package` takes. Raises `Undecodable` for the header.
    """
    # A PackageEntry has the tags of a PackageMessage, so it can be read from the same bytes, and
    # what is written again is what `encode_entry` writes. Other bytes may still say the same.
    wire = package_pb2.PackageEntry.FromString(value)
    wire.DiscardUnknownFields()
    if headers.get(ENTRY_HEADER) == wire.SerializeToString():
        return True
    return decode_entry(headers) == _read_entry(wire)


EntryRow = tuple[str, int, str, int, list[str], list[str], tuple[str, str] | None, tuple[str, ...]]
"""Package id, body length, user, number of the action, paths, deep paths, range if it has one,
and targets."""

ACTION_NUMBERS: Mapping[Action, int] = {
    Action(name): number for name, number in package_pb2.Action.items()
}
_ACTIONS = {number: action for action, number in ACTION_NUMBERS.items()}

_PLAIN_FIELDS = attrgetter(
    *("package_id", "body_length", "user", "action", "range_from", "range_to", "targets")
)


def decode_entry_row(headers: Mapping[str, bytes]) -> EntryRow:
    """Decode of the `entry` header what queues keep. Raises `Undecodable`.

    Costs a third of `decode_entry`: a publisher reads a million of them when it starts.
    """
    try:
        wire = package_pb2.PackageEntry.FromString(headers.get(ENTRY_HEADER, b""))
    except (DecodeError, ValueError) as error:
        raise Undecodable(f"the record's entry header is none: {error}") from error
    package_id, body_length, user, number, first, end, targets = _PLAIN_FIELDS(wire)
    _action(number)
    held = (first, end) if first or end else None
    named = tuple(targets) if targets else ()
    return package_id, body_length, user, number, wire.paths[:], wire.deep_paths[:], held, named


class PackageRow(NamedTuple):
    """What an archive lists of a package."""

    action: str
    paths: list[str]
    deep_paths: list[str]
    body_sha256: str
    content_length: int
    body_reference: str | None
    package_id: str
    publisher_agent: str
    range_from: str
    range_to: str
    user: str
    producer: str
    epoch: int
    sequence: int
    body_length: int
    node_count: int
    accepted_ms: int
    publisher_instance: str
    package_type: str


_ROW_FIELDS = attrgetter(
    *("action", "paths", "deep_paths", "body_sha256", "content_length"), *PackageRow._fields[6:]
)


def is_producer(name: str) -> bool:
    """Return whether a package's producer can be one, or that it has none (R27, R30)."""
    return not name or (len(name) <= MAX_PRODUCER and name.isprintable())


def decode_package(headers: Mapping[str, bytes], value: bytes) -> PackageMessage:
    """Decode a package record.

    Raises `Undecodable`, also for another kind of message, for a record without a digest or with
    one that is not that of its content (R32), or for a producer that can't be one.
    """
    return _message(_read_package(headers, value))


def decode_stored_package(value: bytes) -> PackageMessage:
    """Decode the value of a package that a database keeps without its headers."""
    return _message(_parse_package(value))


def _message(wire: package_pb2.PackageMessage) -> PackageMessage:
    return PackageMessage(
        entry=_read_entry(wire),
        body=_read_body(wire),
        publisher_instance=wire.publisher_instance,
        package_type=wire.package_type,
        metadata=dict(wire.metadata),
    )


def decode_package_row(headers: Mapping[str, bytes], value: bytes) -> PackageRow:
    """Decode of a package record what an archive lists, the body left out.

    Takes and refuses what `decode_package` does, at a quarter of its cost.
    """
    wire = _read_package(headers, value)
    number, paths, deep_paths, sha256, content_length, *plain = _ROW_FIELDS(wire)
    kind = wire.WhichOneof("body")
    return PackageRow(
        _action(number).value,
        paths[:],
        deep_paths[:],
        sha256.hex() if kind else "",
        content_length if kind else 0,
        wire.body_reference if kind == "body_reference" else None,
        *plain,
    )


def _read_package(headers: Mapping[str, bytes], value: bytes) -> package_pb2.PackageMessage:
    expect(headers, PackageMessage)
    wire = _parse_package(value)
    if not has_digest(headers, value):
        raise Undecodable(
            "the record's SHA-256 is missing, or not that of its content: it was damaged or changed"
        )
    return wire


def _parse_package(value: bytes) -> package_pb2.PackageMessage:
    try:
        wire = package_pb2.PackageMessage.FromString(value)
    except (DecodeError, ValueError) as error:
        raise Undecodable(f"the record's bytes are no PackageMessage: {error}") from error
    if not is_producer(wire.producer):
        raise Undecodable(
            f"the package's producer is not up to {MAX_PRODUCER} printable characters"
        )
    return wire


def has_digest(headers: Mapping[str, bytes], value: bytes) -> bool:
    """Return whether the headers have the record's digest (R32)."""
    return headers.get(DIGEST_HEADER) == _digest(headers, value)


def _read_body(wire: package_pb2.PackageMessage) -> PackageBody | None:
    kind = wire.WhichOneof("body")
    if kind is None:
        return None
    inline = wire.body_inline if kind == "body_inline" else None
    reference = wire.body_reference if kind == "body_reference" else None
    return PackageBody(wire.body_sha256, wire.content_length, inline, reference)
