"""The event topic's JSON and back: whoever reads it trusts nothing in it (R30)."""

import json

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


def test_lists_that_an_older_build_left_out_are_empty() -> None:
    found = decode_distributed(HEADERS, b'{"package_id": "p", "offset": 1, "later": {}}')
    assert found == PackageDistributed("p", "", 1)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"offset": ' + b"9" * 5000 + b"}",
        b'{"offset": 9223372036854775808}',
        b'{"offset": -2}',
        b'{"offset": true}',
        b'{"offset": 1.5}',
        b'{"offset": 1, "action": 3}',
        b'{"offset": 1, "paths": "/a"}',
        b'{"offset": 1, "paths": [1]}',
        json.dumps({"offset": 1, "package_id": "\ud800"}).encode(),
    ],
)
def test_r30_what_is_no_event_is_undecodable(value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_distributed(HEADERS, value)


def test_another_message_is_undecodable() -> None:
    with pytest.raises(Undecodable, match="not PackageDistributed"):
        decode_distributed({"message-type": b"StatusMessage", "message-version": b"1"}, b"{}")
