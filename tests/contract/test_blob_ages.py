"""Renewal, and removal of what was not renewed: what a sweep rests on (R22)."""

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packhorse.blobs import s3
from packhorse.blobs.api import (
    RENEWED_MS,
    BlobCorrupt,
    BlobStore,
    InvalidBlobKey,
    binary_key,
    package_key,
)
from packhorse.blobs.folders import Folders
from packhorse.blobs.open import open_blobs
from tests.harness.s3 import BUCKET, S3Server

_numbers = itertools.count()
_DAY_S = 24 * 3600
CONTENT = b"content"
KEY = binary_key(hashlib.sha256(CONTENT).hexdigest())

Age = Callable[[str], int]


@pytest.fixture(params=["filesystem", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A store's URL, and the folder where its blobs are files, an S3 server's too."""
    if request.param == "filesystem":
        return str(tmp_path / "blobs"), tmp_path / "blobs"
    server: S3Server = request.getfixturevalue("s3")
    prefix = f"ages-{next(_numbers)}"
    return server.url(prefix), server.data / BUCKET / prefix


@pytest.fixture
def blobs(place: tuple[str, Path]) -> Iterator[BlobStore]:
    store = open_blobs(place[0])
    yield store
    store.close()


@pytest.fixture
def age(place: tuple[str, Path], blobs: BlobStore) -> Age:
    """Make a blob a day older; returns when it was written now."""

    def older(key: str) -> int:
        before = (place[1] / key).stat()
        os.utime(place[1] / key, (before.st_atime, before.st_mtime - _DAY_S))
        found = blobs.head(key)
        assert found is not None
        assert blobs.now_ms() - found.modified_ms > _DAY_S * 1000 - 60_000
        return found.modified_ms

    return older


def is_young(blobs: BlobStore, key: str) -> bool:
    found = blobs.head(key)
    return found is not None and blobs.now_ms() - found.modified_ms < RENEWED_MS


def test_r22_an_old_blob_is_renewed(place: tuple[str, Path], blobs: BlobStore, age: Age) -> None:
    blobs.put(KEY, [CONTENT])
    age(KEY)
    renewed = blobs.renew(KEY)
    assert renewed == blobs.head(KEY)
    assert is_young(blobs, KEY)
    assert b"".join(blobs.get(KEY)) == CONTENT
    assert {blob.key for blob in blobs.list("")} == {KEY}
    assert not list((place[1] / "renewing").glob("*")), "no copy is left aside"


@pytest.mark.parametrize("place", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
def test_r22_a_blob_too_large_to_be_copied_is_renewed_by_its_own_bytes_alone(
    place: tuple[str, Path], blobs: BlobStore, age: Age, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_COPIED_BYTES", 0)
    blobs.put(KEY, [CONTENT])
    age(KEY)
    blobs.renew(KEY)
    assert is_young(blobs, KEY)
    assert b"".join(blobs.get(KEY)) == CONTENT
    (place[1] / KEY).write_bytes(CONTENT.upper())
    age(KEY)
    with pytest.raises(BlobCorrupt):
        blobs.renew(KEY)
    assert not is_young(blobs, KEY)


def test_r22_what_is_not_there_is_not_renewed(blobs: BlobStore) -> None:
    assert blobs.renew(KEY) is None
    assert blobs.head(KEY) is None
    with pytest.raises(InvalidBlobKey):
        blobs.renew("binaries/ab/../../etc/passwd")
    with pytest.raises(InvalidBlobKey):
        blobs.delete_unless_renewed("binaries/ab/../../etc/passwd", 1)


def test_r22_bytes_that_are_there_already_are_renewed_by_a_put(blobs: BlobStore, age: Age) -> None:
    blobs.put(KEY, [CONTENT])
    age(KEY)
    assert not blobs.put(KEY, [CONTENT]).created
    assert is_young(blobs, KEY)
    age(KEY)
    blobs.put_many({KEY: CONTENT})
    assert is_young(blobs, KEY)
    assert b"".join(blobs.get(KEY)) == CONTENT


def test_a_stored_package_that_is_there_already_is_kept_as_it_is(
    blobs: BlobStore, age: Age
) -> None:
    key = package_key("package-0123ab")
    blobs.put(key, [b"first"])
    modified = age(key)
    assert not blobs.put(key, [b"second"]).created
    found = blobs.head(key)
    assert found is not None
    assert found.modified_ms == modified
    assert b"".join(blobs.get(key)) == b"first"


def test_r22_only_what_was_not_renewed_is_removed(blobs: BlobStore, age: Age) -> None:
    blobs.put(KEY, [CONTENT])
    marked = age(KEY)
    blobs.renew(KEY)
    assert not blobs.delete_unless_renewed(KEY, marked)
    assert b"".join(blobs.get(KEY)) == CONTENT
    marked = age(KEY)
    assert blobs.delete_unless_renewed(KEY, marked)
    assert blobs.head(KEY) is None
    assert blobs.delete_unless_renewed(KEY, marked)
    assert blobs.put(KEY, [CONTENT]).created
    assert [blob.key for blob in blobs.list("")] == [KEY]


@pytest.mark.parametrize("key", [KEY, f"snapshots/00/{'0' * 32}-00000"])
def test_r22_what_a_killed_renewal_left_goes_with_its_blob(
    place: tuple[str, Path], blobs: BlobStore, age: Age, key: str
) -> None:
    blobs.put(key, [CONTENT])
    aside = place[1] / "renewing" / key.rpartition("/")[2]
    aside.parent.mkdir()
    aside.write_bytes(CONTENT)
    age(key)
    (listed,) = blobs.list(key)
    assert blobs.delete_unless_renewed(key, listed.modified_ms)
    if "s3:" in place[0]:
        assert not aside.exists()


@pytest.mark.parametrize("store", ["renew", "put", "put_many"])
def test_r22_in_a_folder_whoever_has_seen_that_it_is_there_keeps_it(
    tmp_path: Path, store: str
) -> None:
    """Renewal and removal race; what was renewed with success is there afterwards."""
    blobs = open_blobs(str(tmp_path))
    calls: dict[str, Callable[[], object]] = {
        "renew": lambda: blobs.renew(KEY),
        "put": lambda: blobs.put(KEY, [CONTENT]),
        "put_many": lambda: blobs.put_many({KEY: CONTENT}) or True,
    }
    for _ in range(150):
        blobs.put(KEY, [CONTENT])
        os.utime(tmp_path / KEY, (1, 1))
        start = threading.Barrier(2)
        reported: list[object] = []

        def renew(start: threading.Barrier = start, reported: list[object] = reported) -> None:
            start.wait()
            reported.append(calls[store]())

        renewing = threading.Thread(target=renew)
        renewing.start()
        start.wait()
        blobs.delete_unless_renewed(KEY, 1000)
        renewing.join()
        assert (blobs.head(KEY) is not None) or reported == [None]
    assert store == "renew" or is_young(blobs, KEY)
    blobs.close()


def test_r22_a_put_that_finds_the_file_taken_away_lays_it_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = open_blobs(str(tmp_path))
    blobs.put(KEY, [CONTENT])
    os.utime(tmp_path / KEY, (1, 1))
    utime = os.utime

    def late(*arguments: object, **named: object) -> None:
        monkeypatch.setattr(os, "utime", utime)
        Folders.remove_if(folders, KEY, lambda _: True)
        utime(*arguments, **named)  # type: ignore[call-overload]

    folders = Folders(tmp_path)
    monkeypatch.setattr(os, "utime", late)
    blobs.put(KEY, [CONTENT])
    assert b"".join(blobs.get(KEY)) == CONTENT
    folders.close()
    blobs.close()
