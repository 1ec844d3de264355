"""Statuses, announcements and events to record headers and bytes, and back.

What comes from the journal is untrusted (R30): the decoders raise `Undecodable` and nothing else.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from packhorse.wire.messages import (
    MAX_FILTER_BYTES,
    DiscoveryMessage,
    PackageDistributed,
    Status,
    StatusMessage,
    SubscriberState,
    SubscriptionState,
)
from packhorse.wire.record import (
    Encoded,
    Undecodable,
    enum_name,
    expect,
    fields_of,
    made_of,
    parse,
    type_headers,
)
from packhorse.wire.v1 import discovery_pb2, status_pb2

MAX_SUBSCRIPTIONS = 256
"""Subscriptions that one announcement may hold; a publisher agent each, of which there are about
ten."""


def encode_status(message: StatusMessage) -> Encoded:
    """Encode a status."""
    wire = status_pb2.StatusMessage(**fields_of(message, status=message.status.value))
    return Encoded(type_headers(StatusMessage), wire.SerializeToString())


def decode_status(headers: Mapping[str, bytes], value: bytes) -> StatusMessage:
    """Decode a status record. Raises `Undecodable`."""
    expect(headers, StatusMessage)
    wire = status_pb2.StatusMessage()
    parse(wire, value)
    if not wire.journal_id:
        raise Undecodable("the status does not say of which journal its offset is")
    status = Status(enum_name(status_pb2.Status, wire.status))
    return made_of(StatusMessage, wire, status=status)


def encode_discovery(message: DiscoveryMessage) -> Encoded:
    """Encode an announcement."""
    wire = discovery_pb2.DiscoveryMessage(
        subscriber_instance=message.subscriber_instance,
        subscriber=message.subscriber,
        states=[_write_state(state) for state in message.states],
        configuration=discovery_pb2.SubscriberConfiguration(
            editable=message.editable,
            max_retries=message.max_retries,
            include=message.include,
            exclude=message.exclude,
            map_paths=[
                discovery_pb2.PathMapping(source=source, target=target)
                for source, target in message.map_paths
            ],
            exclude_properties=message.exclude_properties,
        ),
        endpoint=message.endpoint,
        announced_ms=message.announced_ms,
    )
    return Encoded(type_headers(DiscoveryMessage), wire.SerializeToString())


def _write_state(state: SubscriberState) -> discovery_pb2.SubscriberState:
    return discovery_pb2.SubscriberState(**fields_of(state, state=state.state.value))


def decode_discovery(headers: Mapping[str, bytes], value: bytes) -> DiscoveryMessage:
    """Decode an announcement record. Raises `Undecodable`."""
    expect(headers, DiscoveryMessage)
    wire = discovery_pb2.DiscoveryMessage()
    parse(wire, value)
    if len(wire.states) > MAX_SUBSCRIPTIONS:
        raise Undecodable(
            f"the announcement has {len(wire.states)} subscriptions; at most {MAX_SUBSCRIPTIONS}"
        )
    configuration = wire.configuration
    mapped = tuple((one.source, one.target) for one in configuration.map_paths)
    lists = (configuration.include, configuration.exclude, configuration.exclude_properties)
    named = sum(len(text.encode()) for texts in (*lists, *mapped) for text in texts)
    if named > MAX_FILTER_BYTES:
        raise Undecodable(f"the announcement's filter has {named} bytes")
    return DiscoveryMessage(
        subscriber=wire.subscriber,
        states=tuple(_read_state(state) for state in wire.states),
        editable=configuration.editable,
        max_retries=configuration.max_retries,
        endpoint=wire.endpoint,
        announced_ms=wire.announced_ms,
        subscriber_instance=wire.subscriber_instance,
        include=tuple(configuration.include),
        exclude=tuple(configuration.exclude),
        map_paths=mapped,
        exclude_properties=tuple(configuration.exclude_properties),
    )


def _read_state(wire: discovery_pb2.SubscriberState) -> SubscriberState:
    state = SubscriptionState(enum_name(discovery_pb2.SubscriptionState, wire.state))
    return made_of(SubscriberState, wire, state=state)


def encode_distributed(message: PackageDistributed, *, source: str, time: str) -> Encoded:
    """Encode the event as a CloudEvent 1.0 in Kafka's binary mode; `time` is RFC 3339."""
    attributes = {
        "ce_specversion": "1.0",
        "ce_id": message.package_id,
        "ce_source": source,
        "ce_type": "packhorse.package.distributed.v1",
        "ce_time": time,
        "content-type": "application/json",
    }
    headers = {name: text.encode() for name, text in attributes.items()}
    return Encoded(
        {**type_headers(PackageDistributed), **headers}, json.dumps(asdict(message)).encode()
    )


_EVENT_TEXTS = ("package_id", "publisher_agent", "action", "state")
_EVENT_LISTS = ("paths", "deep_paths", "imported", "removed", "failed", "skipped", "away")


def decode_distributed(headers: Mapping[str, bytes], value: bytes) -> PackageDistributed:
    """Decode the data of a `PackageDistributed` event. Raises `Undecodable`."""
    expect(headers, PackageDistributed)
    try:
        body = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the event's data is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise Undecodable("the event's data is no JSON object")
    fields: dict[str, Any] = {name: _text(body.get(name), name) for name in _EVENT_TEXTS}
    fields |= {name: _texts(body.get(name), name) for name in _EVENT_LISTS}
    return PackageDistributed(offset=_offset(body.get("offset")), **fields)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise Undecodable(f"the event's {name} is no text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Undecodable(f"the event's {name} holds half a surrogate pair") from error
    return value


def _texts(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Undecodable(f"the event's {name} is no list")
    return tuple(_text(item, name) for item in value)


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 2**63:
        raise Undecodable("the event's offset is none")
    return value
