"""The event topic's JSON and back: whoever reads it trusts nothing in it (R30)."""

import json
from dataclasses import asdict

import pytest

from packhorse.wire.codec import decode_distributed, encode_distributed
from packhorse.wire.messages import PackageDistributed
from packhorse.wire.record import Undecodable, type_headers

EVENT = PackageDistributed(
    "p-1", "main", 7, ("/a",), ("/b",), "ADD", ("s1",), ("s2",), ("s3",), ("s4",), ("s5",)
)
HEADERS = type_headers(PackageDistributed)


def test_an_event_comes_back_as_it_was() -> None:
    encoded = encode_distributed(EVENT, source="/publisher/main", time="2026-01-01T00:00:00Z")
    assert decode_distributed(encoded.headers, encoded.value) == EVENT


def test_a_field_of_a_later_build_is_passed_by() -> None:
    value = json.dumps(asdict(EVENT) | {"later": {}}).encode()
    assert decode_distributed(HEADERS, value) == EVENT


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_r30_what_is_no_event_is_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_distributed(HEADERS, value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("offset", "9" * 5000),
        ("offset", "9223372036854775808"),
        ("offset", "-2"),
        ("offset", "true"),
        ("offset", "1.5"),
        ("action", "3"),
        ("paths", '"/a"'),
        ("paths", "[1]"),
        ("package_id", '"\\ud800"'),
        ("state", "null"),
    ],
)
def test_r30_an_event_with_a_field_that_is_none_is_undecodable(name: str, text: str) -> None:
    value = json.dumps(asdict(EVENT) | {name: "@"}).replace('"@"', text)
    with pytest.raises(Undecodable):
        decode_distributed(HEADERS, value.encode())


def test_another_message_is_undecodable() -> None:
    with pytest.raises(Undecodable, match="not PackageDistributed"):
        decode_distributed({"message-type": b"StatusMessage", "message-version": b"1"}, b"{}")
