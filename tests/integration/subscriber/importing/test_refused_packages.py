"""Packages that are whole and yet refused, as somebody could write them (R14, R30)."""

import hashlib
import json
from dataclasses import replace

import pytest

from packhorse.content.node import Binary, Node
from packhorse.errors import Permanent
from packhorse.packages.body import pack
from packhorse.packages.compression import compress
from packhorse.packages.limits import LIMITS, PackageRefused
from packhorse.wire.messages import Action, PackageBody, PackageMessage
from packhorse.wire.node_codec import BinaryRecord, NodeRecord, encode_node
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, given_up
from tests.integration.subscriber.conftest import Workers


@pytest.fixture
def strict(workers: Workers) -> Worker:
    return workers(policy=RetryPolicy(0, 0.0, 0.0))


@pytest.mark.parametrize("named", [(["/"], []), ([], ["/"])])
def test_r14_a_delete_of_the_root_fails(
    feed: Feed, strict: Worker, named: tuple[list[str], list[str]]
) -> None:
    feed.add(page("/kept"))
    offset = feed.append(feed.message(Action.DELETE, *named, None))
    assert "remove all content" in given_up(feed, strict, offset)
    assert "/kept" in content_of(strict.url)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (Node("/a", "a\x1btype"), "control character"),
        (Node("/a", "page", json.dumps({"a": "x" * (1 << 20)})), "into a binary"),
        (Node("/a", "page", "{}", (Binary("b", "0" * 64, 1, "text/\x1bhtml"),)), "media type"),
        (Node("/a", "page", "{}", (Binary("b", "0" * 64, 1, ""),)), "media type"),
    ],
)
def test_r14_a_node_that_the_content_api_refuses_fails(
    feed: Feed, strict: Worker, node: Node, why: str
) -> None:
    with pytest.raises(Permanent, match=why):  # nor does a publisher pack it
        feed.message(Action.ADD, ["/a"], [], [node])
    record = NodeRecord(
        node.path,
        node.type,
        node.properties.encode(),
        [BinaryRecord(b.name, bytes(32), b.length, b.media_type) for b in node.binaries],
    )
    data = encode_node(record)
    offset = feed.append(with_body(feed, varint(len(data)) + data))
    assert why in given_up(feed, strict, offset)


def test_r30_a_small_record_that_unpacks_to_very_much_fails(feed: Feed, strict: Worker) -> None:
    one = encode_node(NodeRecord("/a", "page", json.dumps({"a": "x" * 10_000}).encode()))
    message = with_body(feed, (varint(len(one)) + one) * 1_000)
    assert message.body is not None
    assert message.body.content_length > 100 * message.entry.body_length + 1024**2
    offset = feed.append(message)
    assert "so much into so little" in given_up(feed, strict, offset)


def test_r30_a_package_larger_than_the_setting_fails(feed: Feed, strict: Worker) -> None:
    limits = replace(LIMITS, content_bytes=1 << 20)
    strict.content_bytes = 1 << 20
    nodes = [page("/a", text="".join(map(str, range(60_000)))) for _ in range(4)]
    nodes = [replace(node, path=f"/a/{n}") for n, node in enumerate(nodes)]
    offset = feed.add(*nodes)
    assert "PACKHORSE_MAX_PACKAGE_BYTES" in given_up(feed, strict, offset)
    with pytest.raises(PackageRefused, match="PACKHORSE_MAX_PACKAGE_BYTES"):
        pack(nodes, "dstrpck-1-00ff", feed.blobs, limits)


def test_r30_what_compresses_well_goes_by_reference_and_is_imported(
    feed: Feed, strict: Worker
) -> None:
    """A publisher never makes what a subscriber refuses."""
    nodes = [page(f"/a/{n}", text="x" * 100_000) for n in range(40)]
    message = feed.message(Action.ADD, [node.path for node in nodes], (), nodes)
    assert message.body is not None
    assert message.body.reference
    assert message.entry.body_length < 819_200
    feed.append(message)
    strict.run()
    assert_is_the_fold(strict.url, feed)


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def with_body(feed: Feed, data: bytes) -> PackageMessage:
    """Return an ADD whose body holds what no publisher would pack."""
    message = feed.message(Action.ADD, ["/a"], [], [page("/a")])
    frame = compress(data)
    body = PackageBody(hashlib.sha256(frame).digest(), len(data), inline=frame)
    return replace(message, entry=replace(message.entry, body_length=len(frame)), body=body)
