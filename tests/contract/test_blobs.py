"""The blob store's promises, on every backend."""

import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from packhorse.blobs.api import (
    BlobCorrupt,
    BlobMissing,
    BlobStore,
    BlobStoreUnavailable,
    InvalidBlobKey,
    InvalidBlobsUrl,
    binary_key,
    package_key,
)
from packhorse.blobs.open import open_blobs
from tests.harness.s3 import S3Server, running_s3

_numbers = itertools.count()


@pytest.fixture(params=["filesystem", pytest.param("s3", marks=pytest.mark.s3)])
def blobs_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "filesystem":
        return str(tmp_path / "blobs")
    return str(request.getfixturevalue("s3").url(f"contract-{next(_numbers)}"))


@pytest.fixture
def blobs(blobs_url: str) -> Iterator[BlobStore]:
    store = open_blobs(blobs_url)
    yield store
    store.close()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def megabytes(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield bytes([number % 251]) * (1024 * 1024)


KEY = package_key("package-0123ab")


@pytest.mark.parametrize("content", [b"", b"hello", os.urandom(3_000_000)])
def test_what_was_put_comes_back(blobs: BlobStore, content: bytes) -> None:
    chunks = [content[start : start + 70_000] for start in range(0, len(content), 70_000)]
    written = blobs.put(KEY, chunks)
    assert (written.key, written.length, written.sha256) == (KEY, len(content), sha256(content))
    assert written.created
    assert b"".join(blobs.get(KEY)) == content
    found = blobs.head(KEY)
    assert found is not None
    assert (found.key, found.length) == (KEY, len(content))


def test_the_second_put_of_a_key_keeps_the_first(blobs: BlobStore) -> None:
    assert blobs.put(KEY, [b"first"]).created
    second = blobs.put(KEY, [b"sec", b"ond"])
    assert not second.created
    assert (second.length, second.sha256) == (len(b"second"), sha256(b"second"))
    assert b"".join(blobs.get(KEY)) == b"first"


def test_r7_wrong_digest_leaves_nothing(blobs: BlobStore) -> None:
    key = binary_key(sha256(b"what was promised"))
    for chunks in ([b"something else"], megabytes(20)):
        with pytest.raises(BlobCorrupt, match="was promised"):
            blobs.put(key, chunks)
        assert blobs.head(key) is None
    assert list(blobs.list("")) == []


def test_wrong_bytes_for_a_key_that_is_there_are_refused_too(blobs: BlobStore) -> None:
    key = binary_key(sha256(b"right"))
    blobs.put(key, [b"right"])
    with pytest.raises(BlobCorrupt):
        blobs.put(key, [b"wrong"])
    assert b"".join(blobs.get(key)) == b"right"


@pytest.mark.parametrize("error", [ValueError("mine"), FileNotFoundError("mine"), OSError("mine")])
@pytest.mark.parametrize("length", [1, 20])
def test_a_stream_that_breaks_leaves_nothing(
    blobs: BlobStore, error: Exception, length: int
) -> None:
    def broken() -> Iterator[bytes]:
        yield from megabytes(length)
        raise error

    with pytest.raises(type(error)) as raised:
        blobs.put(KEY, broken())
    assert raised.value is error
    assert blobs.head(KEY) is None
    assert list(blobs.list("packages/")) == []


def test_ranges(blobs: BlobStore) -> None:
    content = os.urandom(600_000)
    blobs.put(KEY, [content])
    for start, end in [
        (0, 1),
        (5, 300_001),
        (599_999, None),
        (0, 700_000),
        (0, 70_000_000),
        (7, 7),
        (700_000, None),
    ]:
        assert b"".join(blobs.get(KEY, start=start, end=end)) == content[start:end]


def test_what_is_missing(blobs: BlobStore) -> None:
    assert blobs.head(KEY) is None
    with pytest.raises(BlobMissing):
        next(blobs.get(KEY))
    blobs.delete(KEY)


def test_delete(blobs: BlobStore) -> None:
    blobs.put(KEY, [b"x"])
    blobs.delete(KEY)
    assert blobs.head(KEY) is None
    assert blobs.put(KEY, [b"y"]).created


def test_list_by_prefix(blobs: BlobStore) -> None:
    contents = [str(number).encode() for number in range(40)]
    keys = [binary_key(sha256(content)) for content in contents]
    blobs.put_many(dict(zip(keys, contents, strict=True)))
    blobs.put(KEY, [b"package"])
    assert {blob.key for blob in blobs.list("")} == {*keys, KEY}
    assert {blob.key for blob in blobs.list("binaries/")} == set(keys)
    assert [blob.key for blob in blobs.list(keys[0][:15])] == [keys[0]]
    assert {blob.key for blob in blobs.list("packages/a")} == {KEY}
    assert list(blobs.list("packages/zz")) == []
    snapshot = "snapshots/00/manifest-1-ab"
    blobs.put(snapshot, [b"snapshot"])
    assert [blob.key for blob in blobs.list("snapshots/00/manifest-")] == [snapshot]
    assert {blob.key for blob in blobs.list("packages/")} == {KEY}
    assert all(blob.length in (1, 2) for blob in blobs.list("binaries/"))


def test_put_many_twice(blobs: BlobStore) -> None:
    contents = {binary_key(sha256(content)): content for content in (b"", b"one", b"two" * 9999)}
    blobs.put_many(contents)
    blobs.put_many({**contents, binary_key(sha256(b"new")): b"new"})
    for key, content in contents.items():
        assert b"".join(blobs.get(key)) == content


def test_r28_ages_are_by_the_stores_own_clock(blobs: BlobStore) -> None:
    blobs.put(KEY, [b"x"])
    found = blobs.head(KEY)
    assert found is not None
    assert 0 <= blobs.now_ms() - found.modified_ms < 60_000
    assert [blob.key for blob in blobs.list("")] == [KEY]


def test_check_finds_nothing_wrong(blobs: BlobStore) -> None:
    blobs.check()
    assert list(blobs.list("")) == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "packages/ab/../../etc/passwd",
        "/etc/passwd",
        "packages/ab/a/b",
        "packages/zz/a",
        "snapshots/ab/../00/manifest",
        "others/ab/a",
        "packages/ab/a\0b",
        "packages/ab/a%2fb",
        "http://169.254.169.254/latest",
        "packages/ab/" + "a" * 121,
        "packages/ab/a\n",
    ],
)
def test_a_key_is_never_a_path_or_url(blobs: BlobStore, key: str) -> None:
    for call in (
        lambda: blobs.put(key, [b"x"]),
        lambda: blobs.put_many({key: b"x"}),
        lambda: list(blobs.get(key)),
        lambda: blobs.head(key),
        lambda: blobs.delete(key),
    ):
        with pytest.raises(InvalidBlobKey):
            call()


def most_kib() -> int:
    """Return the most memory that this process has had."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def test_a_large_blob_needs_little_memory(blobs: BlobStore) -> None:
    blobs.put(KEY, megabytes(1))  # whatever is loaded once is loaded now
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is what there is now
    before = most_kib()
    key = package_key("large-00")
    assert blobs.put(key, megabytes(200)).length == 200 * 1024 * 1024
    assert sum(map(len, blobs.get(key))) == 200 * 1024 * 1024
    assert max(map(len, blobs.get(key, end=30_000_000))) <= 4 * 1024 * 1024
    assert most_kib() - before < 120 * 1024


def test_several_stores_at_one_place(blobs: BlobStore, blobs_url: str) -> None:
    other = open_blobs(blobs_url)
    other.put(KEY, [b"x"])
    assert b"".join(blobs.get(KEY)) == b"x"
    other.close()


@pytest.mark.s3
def test_an_s3_server_that_is_away(s3: object) -> None:
    store = open_blobs("s3://blobs?endpoint=http://127.0.0.1:1&allow_http=true")
    with pytest.raises(BlobStoreUnavailable):
        store.check()
    store.close()


@pytest.mark.s3
def test_an_s3_server_that_dies_while_it_is_read(s3: object) -> None:
    with running_s3() as own:
        store = open_blobs(own.url())
        store.put(KEY, megabytes(40))
        chunks = store.get(KEY)
        next(chunks)
        own.process.kill()
        own.process.wait()
        with pytest.raises(BlobStoreUnavailable):
            list(chunks)
        with pytest.raises(BlobStoreUnavailable):
            store.put(package_key("package-00"), [b"x"])
        store.close()


@pytest.mark.s3
def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    store = open_blobs(s3.url().replace("s3://blobs", "s3://nowhere"))
    with pytest.raises(BlobStoreUnavailable, match="create it"):
        store.check()
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x/y",
        "file://other-host/blobs",
        "/blobs?x=1",
        "s3://",
        "s3:///prefix",
        "s3://key:secret@bucket",
        "s3://bucket?endpoint=http://127.0.0.1:1",
        "s3://bucket?endpoint=http://key:secret@127.0.0.1:1&allow_http=true",
        "s3://bucket?endpoint=https://key:se/cret@127.0.0.1:1",
        "s3://bucket?endpoint=ftp://127.0.0.1&allow_http=true",
        "s3://bucket?colour=red",
    ],
)
def test_urls_that_name_no_store(url: str) -> None:
    with pytest.raises(InvalidBlobsUrl):
        open_blobs(url)
