"""What every message's record has in common: headers, version, and one way to fail."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from packhorse.errors import Permanent
from packhorse.wire.messages import Message, SubscriberState

TYPE_HEADER = "message-type"
VERSION_HEADER = "message-version"
VERSION = b"1"

if api_implementation.Type() != "upb":  # hostile input costs the pure Python decoder 200 times more
    raise RuntimeError("protobuf runs without its C implementation (upb); reinstall protobuf")


Made = TypeVar("Made", bound=Message | SubscriberState)


class Undecodable(Permanent):
    """A record does not hold the message that its headers promise (R14)."""


class ProtobufEnum(Protocol):
    """What this package needs of a generated enum."""

    def Name(self, number: Any) -> str:  # noqa: N802 - protobuf's name
        """Return the name of `number`. Raises ValueError."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A message ready for the journal."""

    headers: Mapping[str, bytes]
    value: bytes


def message_type(headers: Mapping[str, bytes]) -> str:
    """Return the name of the message that the headers promise, or an empty string."""
    return headers.get(TYPE_HEADER, b"").decode("ascii", "replace")


def type_headers(kind: type[Message]) -> dict[str, bytes]:
    """Return the headers that every record of `kind` carries."""
    return {TYPE_HEADER: kind.__name__.encode(), VERSION_HEADER: VERSION}


def expect(headers: Mapping[str, bytes], kind: type[Message]) -> None:
    """Raise `Undecodable` unless the headers promise a `kind` of this version."""
    if headers.get(TYPE_HEADER) != kind.__name__.encode():
        raise Undecodable(f"record is of type {message_type(headers)!r}, not {kind.__name__}")
    if headers.get(VERSION_HEADER) != VERSION:
        raise Undecodable(f"{kind.__name__} has a version this build does not know; upgrade it")


def parse(wire: ProtobufMessage, value: bytes) -> None:
    """Fill `wire` from `value`. Raises `Undecodable`."""
    try:
        wire.ParseFromString(value)
    except (DecodeError, ValueError) as error:
        raise Undecodable(f"the record's bytes are no {type(wire).__name__}: {error}") from error


def enum_name(kind: ProtobufEnum, number: int) -> str:
    """Return the name of an enum's value. Raises `Undecodable` for one from a later version."""
    try:
        return kind.Name(number)
    except ValueError as error:
        raise Undecodable(f"unknown value {number}: {error}; upgrade this build") from error


def fields_of(message: Message | SubscriberState, **others: object) -> dict[str, Any]:
    """Return what a generated message is made of: the fields of `message`, some by `others`."""
    return {name: getattr(message, name) for name in message.__match_args__} | others


def made_of(kind: type[Made], wire: ProtobufMessage, **others: Any) -> Made:
    """Make a `kind` of `others` and, for its remaining fields, of those of `wire`."""
    for name in kind.__match_args__:
        if name not in others:
            others[name] = getattr(wire, name)
    return kind(**others)
