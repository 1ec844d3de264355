"""Bodies: packed in constant memory, verified and bounded when they are unpacked (R7, R30)."""

import hashlib
import json
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from packhorse.blobs.api import BlobCorrupt, BlobMissing, BlobStore, package_key
from packhorse.content.node import Binary, InvalidNode, InvalidPath, Node
from packhorse.packages.body import PackedBody, pack, unpack
from packhorse.packages.format import write_nodes
from packhorse.packages.limits import (
    INLINE_BYTES,
    LIMITS,
    PackageCorrupt,
    PackageLimits,
    PackageRefused,
)
from packhorse.wire.messages import Action, PackageBody, PackageEntry, PackageMessage
from packhorse.wire.record import Undecodable
from tests.unit.packages.memory_blobs import MemoryBlobs

ID = "dstrpck-1-00ff"
DIGEST = "ab" * 32


@pytest.fixture
def blobs() -> BlobStore:
    return cast(BlobStore, MemoryBlobs())


def message(packed: PackedBody, package_id: str = ID) -> PackageMessage:
    entry = PackageEntry(package_id, "main", Action.ADD, ("/a",), body_length=packed.length)
    return PackageMessage(entry, packed.body)


def noise(count: int, size: int = 20_000) -> Iterator[Node]:
    source = random.Random(1)
    for number in range(count):
        yield Node(f"/a/{number}", "page", f'{{"text": "{source.randbytes(size // 2).hex()}"}}')


def inline(content: bytes, **changes: Any) -> PackageMessage:
    """Return a package whose inline body is a frame of `content`."""
    frame = zstandard.compress(content)
    body = PackageBody(hashlib.sha256(frame).digest(), len(content), inline=frame)
    return message(PackedBody(replace(body, **changes), len(frame), 1))


segments = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=8
).filter(lambda name: name not in (".", ".."))
binaries = st.lists(
    st.builds(
        Binary,
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5),
        st.just(DIGEST),
        st.integers(0, 2**62),
        st.just("image/png"),
    ),
    max_size=3,
    unique_by=lambda binary: binary.name,
).map(tuple)
nodes = st.builds(
    Node,
    st.lists(segments, min_size=1, max_size=6).map(lambda names: "/" + "/".join(names)),
    st.sampled_from(["page", "folder", "x" * 1024]),
    st.text(st.characters(exclude_categories=["Cs"])).map(json.dumps),
    binaries,
)


@given(given_nodes=st.lists(nodes, max_size=20))
def test_what_was_packed_is_unpacked(given_nodes: list[Node]) -> None:
    blobs = cast(BlobStore, MemoryBlobs())
    packed = pack(given_nodes, ID, blobs)
    assert list(unpack(message(packed), blobs)) == given_nodes
    assert packed.node_count == len(given_nodes)
    assert packed.stored_key is None


def test_r7_a_body_over_the_limit_goes_by_reference(blobs: BlobStore) -> None:
    given_nodes = list(noise(120))
    packed = pack(given_nodes, ID, blobs)
    assert packed.length > INLINE_BYTES
    assert packed.stored_key == packed.body.reference == package_key(ID)
    assert packed.body.inline is None
    assert list(unpack(message(packed), blobs)) == given_nodes


@pytest.mark.parametrize("count", [0, 1])
def test_a_small_body_goes_by_reference_where_that_is_wanted(blobs: BlobStore, count: int) -> None:
    given_nodes = list(noise(count))
    packed = pack(given_nodes, ID, blobs, inline_bytes=0)
    assert packed.stored_key == packed.body.reference == package_key(ID)
    assert list(unpack(message(packed), blobs)) == given_nodes


def test_r7_the_limit_is_exact(blobs: BlobStore) -> None:
    low, high = 0, 1_000_000
    while high - low > 1:
        size = (low + high) // 2
        packed = pack(noise(2, size), ID, cast(BlobStore, MemoryBlobs()))
        low, high = (size, high) if packed.length <= INLINE_BYTES else (low, size)
    inline, stored = pack(noise(2, low), ID, blobs), pack(noise(2, high), ID, blobs)
    assert (inline.stored_key is None, stored.stored_key is None) == (True, False)
    assert inline.length <= INLINE_BYTES < stored.length


def test_r7_large_bodies_take_constant_memory(blobs: BlobStore) -> None:
    class Sink(MemoryBlobs):
        """Keeps nothing but the length, as a store on disk would."""

        def put(self, key: str, chunks: Any) -> Any:
            length = sum(len(chunk) for chunk in chunks)
            return replace(super().put(key, [b""]), length=length)

    sink = Sink()
    tracemalloc.start()
    try:
        packed = pack(noise(1000), ID, cast(BlobStore, sink))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert packed.length > 9_000_000
    assert peak < 6_000_000


def test_a_package_id_that_is_taken_is_refused(blobs: BlobStore) -> None:
    pack(noise(120), ID, blobs)
    with pytest.raises(BlobCorrupt, match="new package id"):
        pack(noise(121), ID, blobs)


def test_a_body_that_is_stored_again_unchanged_is_the_same(blobs: BlobStore) -> None:
    assert pack(noise(120), ID, blobs) == pack(noise(120), ID, blobs)


def test_a_package_without_a_body_has_no_nodes(blobs: BlobStore) -> None:
    assert list(unpack(PackageMessage(PackageEntry(ID, "main", Action.DELETE)), blobs)) == []


def test_a_changed_inline_body_is_found(blobs: BlobStore) -> None:
    packed = pack([Node("/a", "page")], ID, blobs)
    assert packed.body.inline is not None
    forged = replace(packed.body, inline=packed.body.inline[:-1] + b"x")
    with pytest.raises(PackageCorrupt, match="SHA-256"):
        list(unpack(message(replace(packed, body=forged)), blobs))


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-10], lambda data: data + b"x", lambda data: data[:5] + b"x" + data[6:]],
)
def test_a_changed_stored_body_is_found(change: Any) -> None:
    blobs = MemoryBlobs()
    packed = pack(noise(120), ID, cast(BlobStore, blobs))
    blobs.stored[package_key(ID)] = change(blobs.stored[package_key(ID)])
    with pytest.raises((BlobCorrupt, PackageCorrupt, Undecodable)):
        list(unpack(message(packed), cast(BlobStore, blobs)))


def test_a_stored_body_that_is_not_there_is_missing(blobs: BlobStore) -> None:
    packed = pack(noise(120), ID, cast(BlobStore, MemoryBlobs()))
    with pytest.raises(BlobMissing):
        list(unpack(message(packed), blobs))


@pytest.mark.parametrize(
    "reference",
    ["http://169.254.169.254/", "file:///etc/passwd", "../../etc", package_key("other-00ff"), ""],
)
def test_a_reference_leads_nowhere_but_to_the_packages_own_blob(
    blobs: BlobStore, reference: str
) -> None:
    body = PackageBody(b"\0" * 32, 10, reference=reference)
    with pytest.raises(PackageRefused, match="not its own"):
        list(unpack(message(PackedBody(body, 10, 1)), blobs))


def test_a_bomb_is_stopped_at_the_declared_length(blobs: BlobStore) -> None:
    with pytest.raises(PackageCorrupt):
        list(unpack(inline(b"\0" * 50_000_000, content_length=1000), blobs))


def test_a_frame_that_claims_to_be_huge_takes_no_memory(blobs: BlobStore) -> None:
    frame = bytearray(zstandard.compress(b"\0" * 100_000))
    size_flag, window = 0xE0, 2**60
    forged = bytes(frame[:4]) + bytes([size_flag]) + window.to_bytes(8, "little") + bytes(frame[6:])
    body = PackageBody(hashlib.sha256(forged).digest(), 100_000, inline=forged)
    with pytest.raises(PackageCorrupt):
        list(unpack(message(PackedBody(body, len(forged), 1)), blobs))


def test_a_window_larger_than_allowed_is_refused(blobs: BlobStore) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = writer.compress(b"\0" * 3_000_000) + writer.flush()
    body = PackageBody(hashlib.sha256(frame).digest(), 3_000_000, inline=frame)
    limits = replace(LIMITS, inline_free_bytes=3_000_000)
    with pytest.raises(PackageCorrupt, match="zstd"):
        list(unpack(message(PackedBody(body, len(frame), 1)), blobs, limits))


def test_a_declared_length_over_the_limit_is_refused(blobs: BlobStore) -> None:
    for declared in (LIMITS.content_bytes + 1, -1):
        with pytest.raises(PackageRefused):
            list(unpack(inline(b"", content_length=declared), blobs))


@pytest.mark.parametrize(
    "content",
    [b"\xff" * 20, b"\x80", b"\x05ab", b"\x02\xff\xff", b"\xff\xff\xff\xff\x7f", b"\x00"],
)
def test_r30_bytes_that_are_no_nodes_are_refused(blobs: BlobStore, content: bytes) -> None:
    with pytest.raises((PackageCorrupt, PackageRefused, Undecodable, InvalidPath, InvalidNode)):
        list(unpack(inline(content), blobs))


@given(content=st.binary(max_size=300))
def test_r30_random_bytes_are_refused_and_nothing_else(content: bytes) -> None:
    with suppress(PackageCorrupt, PackageRefused, Undecodable, InvalidPath, InvalidNode):
        list(unpack(inline(content), cast(BlobStore, MemoryBlobs())))


SMALL = PackageLimits(
    content_bytes=10_000, node_bytes=500, nodes=3, binaries=2, depth=3, name_bytes=10
)


@pytest.mark.parametrize(
    "node",
    [
        Node("/a", "page", '"' + "x" * 600 + '"'),
        Node("/a/b/c/d", "page"),
        Node("/a", "x" * 11),
        Node("/a", ""),
        Node("/a", "page", "{}", tuple(Binary(str(n), DIGEST, 1, "") for n in range(3))),
        Node("/a", "page", "{}", (Binary("n", DIGEST, 1, "m" * 11),)),
        Node("/a", "page", "{}", (Binary("n", "ab", 1, "m"),)),
        Node("/a", "page", "{}", (Binary("n", DIGEST, -1, "m"),)),
        Node("/a", "page", "{}", (Binary("n", DIGEST, 1, "m"), Binary("n", DIGEST, 2, "m"))),
        Node("/a/../b", "page"),
        Node("a", "page"),
    ],
)
def test_r30_limits_hold_where_a_package_is_built_and_where_it_is_read(
    blobs: BlobStore, node: Node
) -> None:
    refused = (PackageRefused, InvalidNode, InvalidPath)
    with pytest.raises(refused):
        pack([node], ID, blobs, SMALL)
    lax = PackageLimits()
    try:
        packed = pack([node], ID, blobs, lax)
    except refused:
        return
    with pytest.raises(refused):
        list(unpack(message(packed), blobs, SMALL))


def test_r30_the_number_of_nodes_is_limited(blobs: BlobStore) -> None:
    many = [Node(f"/{number}", "page") for number in range(4)]
    with pytest.raises(PackageRefused, match="more than 3 nodes"):
        pack(many, ID, blobs, SMALL)
    with pytest.raises(PackageRefused, match="more than 3 nodes"):
        list(unpack(message(pack(many, ID, blobs)), blobs, SMALL))


def test_nodes_may_come_in_any_chunks() -> None:
    from packhorse.packages.format import read_nodes

    given_nodes = [Node(f"/{number}", "page", "x" * number) for number in range(200)]
    whole = b"".join(write_nodes(given_nodes))
    for size in (1, 2, 3, 127, 4096):
        chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert list(read_nodes(chunks)) == given_nodes
