"""What a subscription takes for a package: the record that was encoded, and no other (R32)."""

from collections.abc import Iterator, Mapping

import pytest

from packhorse.errors import Permanent
from packhorse.messaging.api import Record
from packhorse.packages.limits import PackageRefused
from packhorse.wire.messages import Action, PackageBody, PackageEntry, PackageMessage
from packhorse.wire.package_codec import (
    AGENT_HEADER,
    DIGEST_HEADER,
    ENTRY_HEADER,
    encode_entry,
    encode_package,
)
from packhorse.wire.v1 import package_pb2
from packhorse_services.subscriber.journal.arrivals import arrival_of, package_of
from tests.harness.digests import digested

PACKAGES = {
    action: PackageMessage(
        PackageEntry(
            *("dstrpck-1-00aa", "main", action, ("/site/page",), ("/site/news",), "someone"),
            *("5d1f3a9e-producer", 3, 7, 9, 1, 1_700_000_000_000),
        ),
        PackageBody(b"d" * 32, 40, inline=b"some bytes") if action is Action.ADD else None,
    )
    for action in Action
}


def record(headers: Mapping[str, bytes], value: bytes, damage: str = "") -> Record:
    return Record("packages", 0, 5, 0, None, headers, value, damage)


def imported(headers: Mapping[str, bytes], value: bytes) -> PackageMessage | None:
    """Return what the subscription would import, or None when the record is a failed attempt."""
    arrival = arrival_of(record(headers, value), "main")
    assert arrival.record is not None, "a damaged record was passed over as somebody else's"
    try:
        return package_of(arrival, "main")
    except Permanent:
        return None


def flips(data: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


@pytest.mark.parametrize("action", list(Action))
def test_r32_no_record_with_a_flipped_bit_is_imported(action: Action) -> None:
    encoded = encode_package(PACKAGES[action])
    assert imported(encoded.headers, encoded.value) == PACKAGES[action]
    for value in flips(encoded.value):
        assert imported(encoded.headers, value) is None
    for name, content in encoded.headers.items():
        others = {key: value for key, value in encoded.headers.items() if key != name}
        for flipped in flips(content):
            assert imported({**others, name: flipped}, encoded.value) is None
        for flipped in flips(name.encode("latin-1")):
            renamed = {**others, flipped.decode("latin-1"): content}
            assert imported(renamed, encoded.value) is None


def test_r32_a_record_without_a_digest_is_refused_whose_ever_it_seems() -> None:
    encoded = encode_package(PACKAGES[Action.ADD])
    headers = {name: data for name, data in encoded.headers.items() if name != DIGEST_HEADER}
    assert imported(headers, encoded.value) is None
    assert imported({**headers, AGENT_HEADER: b"other"}, encoded.value) is None


def test_r14_headers_that_say_something_else_than_the_body_are_refused() -> None:
    """As somebody would do who can write to the journal: everything is well-formed."""
    encoded = encode_package(PACKAGES[Action.DELETE])
    headers = {**encoded.headers, ENTRY_HEADER: encode_entry(PACKAGES[Action.TEST].entry)}
    arrival = arrival_of(record(digested(headers, encoded.value), encoded.value), "main")
    with pytest.raises(PackageRefused, match="headers"):
        package_of(arrival, "main")


def test_r32_what_the_journal_cannot_read_is_every_subscriptions_with_its_reason() -> None:
    arrival = arrival_of(record({}, b"", "failed its checksum"), "main")
    with pytest.raises(Permanent, match="failed its checksum"):
        package_of(arrival, "main")


def test_another_agents_package_is_passed_over() -> None:
    encoded = encode_package(PACKAGES[Action.ADD])
    assert arrival_of(record(encoded.headers, encoded.value), "other").record is None


@pytest.mark.parametrize("action", list(Action))
def test_an_entry_header_that_says_the_same_in_another_order_is_taken(action: Action) -> None:
    encoded = encode_package(PACKAGES[action])
    first, then = package_pb2.PackageEntry(), package_pb2.PackageEntry()
    first.ParseFromString(encoded.headers[ENTRY_HEADER])
    then.user = first.user
    first.ClearField("user")
    entry = then.SerializeToString() + first.SerializeToString()
    assert entry != encoded.headers[ENTRY_HEADER]
    headers = digested({**encoded.headers, ENTRY_HEADER: entry}, encoded.value)
    assert imported(headers, encoded.value) == PACKAGES[action]
