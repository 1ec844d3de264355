"""Messages survive the wire; anything else raises `Undecodable`, soon and cheaply (R14, R30)."""

import contextlib
import json
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhorse.wire.codec import (
    decode_discovery,
    decode_status,
    encode_discovery,
    encode_distributed,
    encode_status,
)
from packhorse.wire.command_codec import (
    decode_command,
    decode_command_status,
    encode_command,
    encode_command_status,
)
from packhorse.wire.messages import (
    Action,
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    DiscoveryMessage,
    PackageDistributed,
    PackageEntry,
    PackageMessage,
    ResetCommand,
    RetryCommand,
    Status,
    StatusMessage,
)
from packhorse.wire.node_codec import BinaryRecord, NodeRecord, decode_node, encode_node
from packhorse.wire.package_codec import (
    ENTRY_HEADER,
    decode_entry,
    decode_package,
    encode_package,
)
from packhorse.wire.record import Encoded, Undecodable, message_type, type_headers
from packhorse.wire.v1 import discovery_pb2, package_pb2, status_pb2
from tests.harness.depth import examples
from tests.harness.digests import digested
from tests.unit.wire.messages import (
    announcements,
    command_statuses,
    commands,
    int64,
    statuses,
    texts,
)

Decode = Callable[[Mapping[str, bytes], bytes], Any]

DECODERS: dict[Any, Decode] = {
    PackageMessage: decode_package,
    StatusMessage: decode_status,
    DiscoveryMessage: decode_discovery,
    **dict.fromkeys((ClearCommand, ControlCommand, ResetCommand, RetryCommand), decode_command),
    CommandStatusMessage: decode_command_status,
}

SAMPLES: dict[Any, Encoded] = {
    PackageMessage: encode_package(
        PackageMessage(PackageEntry("p-1", "main", Action.ADD, ("/a",), ("/b",), "me"))
    ),
    StatusMessage: encode_status(StatusMessage("s", "main", "j", 7, Status.REMOVED)),
    DiscoveryMessage: encode_discovery(DiscoveryMessage("s", ())),
    ClearCommand: encode_command(ClearCommand("c", "s", "main", 7)),
    ControlCommand: encode_command(ControlCommand("c", "s", "main", DesiredState.RUN)),
    ResetCommand: encode_command(ResetCommand("c", "s", "main", 0)),
    RetryCommand: encode_command(RetryCommand("c", "s", "main")),
    CommandStatusMessage: encode_command_status(
        CommandStatusMessage("c", "s", "main", CommandState.SEEN)
    ),
}

KINDS = st.sampled_from(list(DECODERS))


@given(statuses)
def test_a_status_survives(message: StatusMessage) -> None:
    encoded = encode_status(message)
    assert decode_status(encoded.headers, encoded.value) == message


@given(announcements)
def test_an_announcement_survives(message: DiscoveryMessage) -> None:
    encoded = encode_discovery(message)
    assert decode_discovery(encoded.headers, encoded.value) == message


@given(commands)
def test_a_command_survives(message: Command) -> None:
    encoded = encode_command(message)
    assert decode_command(encoded.headers, encoded.value) == message


@given(command_statuses)
def test_what_became_of_a_command_survives(message: CommandStatusMessage) -> None:
    encoded = encode_command_status(message)
    assert decode_command_status(encoded.headers, encoded.value) == message


def test_r30_a_command_under_the_headers_of_another_is_refused() -> None:
    clear = encode_command(ClearCommand("c", "s", "main", 7))
    with pytest.raises(Undecodable, match="another command"):
        decode_command(type_headers(ResetCommand), clear.value)


_nodes = st.builds(
    NodeRecord,
    texts,
    texts,
    st.binary(max_size=40),
    st.lists(
        st.builds(BinaryRecord, texts, st.binary(min_size=32, max_size=32), int64, texts),
        max_size=3,
    ),
)


@given(_nodes)
def test_a_node_survives(record: NodeRecord) -> None:
    assert decode_node(encode_node(record)) == record


def _headers(kind: Any, value: bytes) -> Mapping[str, bytes]:
    """Return what lets a value through to what decodes its fields."""
    headers = type_headers(kind)
    return digested(headers, value) if kind is PackageMessage else headers


def _decode(kind: Any, value: bytes) -> None:
    with contextlib.suppress(Undecodable):
        DECODERS[kind](_headers(kind, value), value)


@settings(max_examples=examples(300))
@given(KINDS, st.binary(max_size=400))
def test_r30_any_bytes_decode_or_raise_undecodable(kind: Any, value: bytes) -> None:
    _decode(kind, value)


@settings(max_examples=examples(300))
@given(KINDS, st.data())
def test_r30_a_damaged_message_decodes_or_raises_undecodable(kind: Any, data: Any) -> None:
    whole = bytearray(SAMPLES[kind].value)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole)))
        whole[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=8))
    _decode(kind, bytes(whole))


@given(st.binary(max_size=400))
def test_r30_any_entry_header_or_node_decodes_or_raises_undecodable(value: bytes) -> None:
    for decode in (lambda: decode_entry({ENTRY_HEADER: value}), lambda: decode_node(value)):
        with contextlib.suppress(Undecodable):
            decode()


@pytest.mark.parametrize("kind", DECODERS)
def test_r14_a_message_of_another_type_is_refused(kind: Any) -> None:
    others = [other for other in DECODERS if DECODERS[other] is not DECODERS[kind]]
    for other in others:
        with pytest.raises(Undecodable, match=kind.__name__):
            DECODERS[kind](type_headers(other), SAMPLES[kind].value)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("version", [b"2", b"", b"1.0", b"\xff", None])
def test_r14_a_version_of_the_future_is_refused_with_what_to_do(
    kind: Any, version: bytes | None
) -> None:
    headers = dict(SAMPLES[kind].headers)
    del headers["message-version"]
    if version is not None:
        headers["message-version"] = version
    with pytest.raises(Undecodable, match="upgrade"):
        DECODERS[kind](headers, SAMPLES[kind].value)


@pytest.mark.parametrize("headers", [{}, {"message-type": b"\xff\x00"}, {"message-type": b""}])
def test_r14_a_record_without_a_type_is_refused(headers: Mapping[str, bytes]) -> None:
    with pytest.raises(Undecodable, match="record is of type"):
        decode_status(headers, b"")
    assert isinstance(message_type(headers), str)


def test_r14_a_status_of_no_journal_is_refused() -> None:
    encoded = encode_status(StatusMessage("s", "main", "", 7, Status.REMOVED))
    with pytest.raises(Undecodable, match="which journal"):
        decode_status(encoded.headers, encoded.value)


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        (StatusMessage, status_pb2.StatusMessage(journal_id="j", status=99)),  # type: ignore[arg-type]
        (PackageMessage, package_pb2.PackageMessage(action=99)),  # type: ignore[arg-type]
        (
            DiscoveryMessage,
            discovery_pb2.DiscoveryMessage(
                states=[discovery_pb2.SubscriberState(state=99)]  # type: ignore[arg-type]
            ),
        ),
    ],
)
def test_r14_a_value_of_the_future_is_refused(kind: Any, wire: Any) -> None:
    value = wire.SerializeToString()
    with pytest.raises(Undecodable, match="99"):
        DECODERS[kind](_headers(kind, value), value)


def test_r14_a_command_of_the_future_is_refused() -> None:
    with pytest.raises(Undecodable, match="another command"):
        decode_command(type_headers(ClearCommand), b"")


def test_a_field_of_the_future_is_passed_over() -> None:
    encoded = SAMPLES[StatusMessage]
    field_500 = b"\xa2\x1f\x03abc"
    assert decode_status(encoded.headers, encoded.value + field_500).offset == 7


_BOMBS = {
    "empty announcements": (DiscoveryMessage, b"\x1a\x00" * 500_000),
    "a length of 2 GB": (StatusMessage, b"\x0a\xff\xff\xff\xff\x07"),
    "nested groups": (StatusMessage, b"\xa3\x1f" * 400_000),
    "unknown fields": (StatusMessage, b"\xa0\x1f\x01" * 330_000),
    "unknown messages": (ClearCommand, b"\xa2\x1f\x00" * 330_000),
}


@pytest.mark.parametrize("bomb", _BOMBS)
def test_a_bomb_costs_a_small_multiple_of_its_size(bomb: str) -> None:
    kind, value = _BOMBS[bomb]
    tracemalloc.start()
    try:
        _decode(kind, value)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_the_event_is_a_cloud_event_in_binary_mode() -> None:
    event = PackageDistributed("p-1", "main", 7, ("/a",), ("/b",))
    encoded = encode_distributed(event, source="/publisher/main", time="2026-01-01T00:00:00Z")
    assert encoded.headers["ce_specversion"] == b"1.0"
    assert encoded.headers["ce_id"] == b"p-1"
    assert encoded.headers["content-type"] == b"application/json"
    assert json.loads(encoded.value)["offset"] == 7
