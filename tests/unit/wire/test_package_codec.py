"""Packages survive the wire; an archive's row and a queue's entry say what the message does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import (
    PackageRow,
    decode_entry,
    decode_package,
    decode_package_row,
    encode_package,
)
from packhorse.wire.record import Undecodable
from tests.harness.depth import examples
from tests.harness.digests import digested
from tests.unit.wire.messages import packages

SAMPLE = encode_package(
    PackageMessage(PackageEntry("p-1", "main", Action.ADD, ("/a",), ("/b",), "me"))
)


@given(packages)
def test_a_package_survives(message: PackageMessage) -> None:
    encoded = encode_package(message)
    assert decode_package(encoded.headers, encoded.value) == message


def row_of(message: PackageMessage) -> PackageRow:
    entry, body = message.entry, message.body
    reported: dict[str, Any] = {"body_sha256": "", "content_length": 0, "body_reference": None}
    kind: dict[str, Any] = {"package_type": message.package_type}
    kind["publisher_instance"] = message.publisher_instance
    if body is not None:
        reported["body_sha256"], reported["content_length"] = body.sha256.hex(), body.content_length
        reported["body_reference"] = body.reference
    of_entry: dict[str, Any] = {
        name: getattr(entry, name) for name in PackageRow._fields if hasattr(entry, name)
    }
    of_entry |= {"action": entry.action.value, "paths": [*entry.paths]}
    of_entry |= {"deep_paths": [*entry.deep_paths]}
    return PackageRow(**reported, **of_entry, **kind)


@given(packages)
def test_a_packages_row_says_what_the_message_does(message: PackageMessage) -> None:
    encoded = encode_package(message)
    assert decode_package_row(encoded.headers, encoded.value) == row_of(message)


@settings(max_examples=examples(300))
@given(st.binary(max_size=200), st.data())
def test_a_packages_row_is_refused_where_the_message_is(tail: bytes, data: Any) -> None:
    """Damaged at one place: both read the same of it, or both refuse."""
    encoded = SAMPLE
    at = data.draw(st.integers(0, len(encoded.value)))
    value = encoded.value[:at] + tail
    headers = digested(encoded.headers, value)
    try:
        expected = row_of(decode_package(headers, value))
    except Undecodable:
        with pytest.raises(Undecodable):
            decode_package_row(headers, value)
    else:
        assert decode_package_row(headers, value) == expected


@given(packages)
def test_r17_the_header_alone_gives_the_entry(message: PackageMessage) -> None:
    assert decode_entry(encode_package(message).headers) == message.entry
