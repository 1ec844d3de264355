"""Blobs in S3, or in what speaks its protocol.

Nothing rests on conditional writes, which some servers accept and ignore: a key stands for one
content, so writing it twice changes nothing. An upload that is cut short never becomes an object.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from typing import TYPE_CHECKING

from packhorse.blobs.api import (
    RENEWED_MS,
    BlobMissing,
    BlobStoreUnavailable,
    InvalidBlobKey,
    StoredBlob,
    WrittenBlob,
    check_key,
    promised_digest,
)
from packhorse.blobs.digest import Verified
from packhorse.blobs.s3_client import Bucket, bucket_of, translated
from packhorse.blobs.s3_objects import Objects
from packhorse.runtime.threads import Threads

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import CopySourceTypeDef

_SMALL_UPLOADS = 16
_CLOCK_KEY = "clock/now"
_RENEWING = "renewing/"
_COPIED_BYTES = 4 * 1024**3
"""A server copies up to 5 GiB by itself; what is larger is uploaded again."""
_CLOCK_S = 30.0


class S3Blobs:
    """A `BlobStore` in one bucket, below a prefix that may be empty."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._objects = Objects(bucket)
        self._clock = _StoreClock(self.now_ms)
        self._uploaders = Threads("s3-upload", _SMALL_UPLOADS)

    def put(self, key: str, chunks: Iterable[bytes]) -> WrittenBlob:
        """Upload in one request what fits into one part, else part by part."""
        verified = Verified(chunks, sha256=promised_digest(check_key(key)))
        found = self.head(key)
        if found is None or (key.startswith("binaries/") and self._is_old(found)):
            self._upload(key, iter(verified))  # over the same bytes, if there are any
        else:
            for _ in verified:  # kept as it is, but the promise is checked
                pass
        return WrittenBlob(key, verified.length, verified.sha256, created=found is None)

    def put_many(self, binaries: Mapping[str, bytes]) -> None:
        """Upload several at a time."""
        for _ in self._uploaders.map(self._put_small, binaries.items()):
            pass

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Request part after part, so that a slow consumer holds no request open."""
        found = self.head(key)
        if found is None:
            raise BlobMissing(f"the bucket has no {key}")
        last = found.length if end is None else min(end, found.length)
        for position in range(start, last, PART_BYTES):
            yield from self._objects.read(key, position, min(position + PART_BYTES, last))

    def head(self, key: str) -> StoredBlob | None:
        """Ask for the object's metadata."""
        check_key(key)
        with suppress(BlobMissing):
            return self._objects.head(key)
        return None

    def delete(self, key: str) -> None:
        """Delete the object."""
        self._delete(check_key(key))

    def renew(self, key: str) -> StoredBlob | None:
        """Copy the object aside and back; S3 refuses to copy one onto itself."""
        found = self.head(key)
        if found is None or not self._is_old(found):
            return found
        with suppress(BlobMissing):  # somebody else has removed it, or renewed it and cleared up
            self._write_again(found)
        return self.head(key)

    def delete_unless_renewed(self, key: str, modified_ms: int) -> bool:
        """Ask, then delete; also the copy that a renewal left aside which was killed."""
        found = self.head(key)
        if found is not None and found.modified_ms != modified_ms:
            return False
        self._delete(key)
        if not key.startswith("packages/"):  # nobody renews those
            self._delete(_aside(key))
        return True

    def list(self, prefix: str) -> Iterator[StoredBlob]:
        """List page after page."""
        with translated(prefix):
            pages = self._bucket.client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket.name, Prefix=self._bucket.prefix + prefix
            )
            for page in pages:
                for entry in page.get("Contents", ()):
                    key = entry["Key"].removeprefix(self._bucket.prefix)
                    with suppress(InvalidBlobKey):  # a stranger's object
                        yield StoredBlob(check_key(key), entry["Size"], _ms(entry["LastModified"]))

    def now_ms(self) -> int:
        """Write an object and ask when that was; whole seconds, as S3 keeps them."""
        self._objects.put(_CLOCK_KEY, b"now")
        return self._objects.head(_CLOCK_KEY).modified_ms

    def check(self) -> None:
        """Write and read one object."""
        try:
            self.now_ms()
        except BlobMissing as error:
            raise BlobStoreUnavailable("the bucket does not exist; create it") from error

    def close(self) -> None:
        """End the upload threads and the connections."""
        self._uploaders.shutdown()
        self._bucket.close()

    def _is_old(self, found: StoredBlob) -> bool:
        return found.modified_ms + RENEWED_MS <= self._clock.now_ms()

    def _delete(self, key: str) -> None:
        with suppress(BlobMissing), translated(key):
            self._bucket.client.delete_object(**self._bucket.place(key))

    def _write_again(self, found: StoredBlob) -> None:
        if found.length > _COPIED_BYTES:
            digest = promised_digest(found.key)
            self._upload(found.key, iter(Verified(self.get(found.key), sha256=digest)))
            return
        aside = _aside(found.key)
        with translated(found.key):
            copy = self._bucket.client.copy_object
            copy(**self._bucket.place(aside), CopySource=self._source(found.key))
            copy(**self._bucket.place(found.key), CopySource=self._source(aside))
        self._delete(aside)

    def _put_small(self, item: tuple[str, bytes]) -> None:
        key, content = item
        self._objects.put(check_key(key), content)

    def _source(self, key: str) -> "CopySourceTypeDef":
        return {"Bucket": self._bucket.name, "Key": self._bucket.prefix + key}

    def _upload(self, key: str, chunks: Iterator[bytes]) -> None:
        first = next_part(chunks)
        if len(first) < PART_BYTES:
            self._objects.put(key, first)
        else:
            upload_parts(self._bucket, self._uploaders, key, chain([first], chunks))


class _StoreClock:
    """The store's clock, asked now and then; in between time passes as this machine counts it."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._requested: tuple[float, int] | None = None

    def now_ms(self) -> int:
        """Return the store's time, late by at most what asking takes."""
        elapsed = time.clock_gettime(time.CLOCK_BOOTTIME)
        requested = self._requested
        if requested is None or not 0 <= elapsed - requested[0] < _CLOCK_S:
            requested = self._requested = (elapsed, self._ask())
        return requested[1] + round((elapsed - requested[0]) * 1000)


def open_s3(url: str) -> S3Blobs:
    """Return the store that `s3://bucket/prefix?endpoint=…&region=…&allow_http=true` names.

    Raises `InvalidBlobsUrl`.
    """
    return S3Blobs(bucket_of(url))


def _aside(key: str) -> str:
    """Return where a blob's copy lies while it is renewed."""
    return _RENEWING + key.rpartition("/")[2]


def _ms(moment: datetime) -> int:
    """Return whole seconds: a listing may say more of them than the answer for one object."""
    return int(moment.timestamp()) * 1000


if TYPE_CHECKING:
    from types_boto3_s3.type_defs import CompletedPartTypeDef

PART_BYTES = 8 * 1024 * 1024
"""One request carries about this much; a server allows 10,000 parts, which makes 80 GiB."""

_AT_A_TIME = 4


def upload_parts(bucket: Bucket, uploaders: Executor, key: str, chunks: Iterator[bytes]) -> None:
    """Upload `chunks` as one object, visible when whole; they are read in the caller's thread.

    An upload that fails is aborted, once no part of it is under way any more: one that came
    later would stay. An error of `chunks` is passed on; others are `translated`.
    """
    with translated(key):
        upload_id = bucket.client.create_multipart_upload(**bucket.place(key))["UploadId"]
    upload = _Upload(bucket, key, upload_id)
    try:
        upload.run(uploaders, chunks)
    except BaseException:
        upload.abort()
        raise


def next_part(chunks: Iterator[bytes]) -> bytes:
    """Return what the next request carries: `PART_BYTES`, a chunk more, or the rest."""
    taken: list[bytes] = []
    length = 0
    while length < PART_BYTES and (chunk := next(chunks, None)) is not None:
        taken.append(chunk)
        length += len(chunk)
    return b"".join(taken)


class _Upload:
    """One upload and the parts of it that are under way."""

    def __init__(self, bucket: Bucket, key: str, upload_id: str) -> None:
        self._bucket, self._key, self._id = bucket, key, upload_id
        self._under_way: deque[Future[CompletedPartTypeDef]] = deque()

    def run(self, uploaders: Executor, chunks: Iterator[bytes]) -> None:
        done: list[CompletedPartTypeDef] = []
        for number in count(1):
            if not (part := next_part(chunks)):
                break
            if len(self._under_way) == _AT_A_TIME:
                done.append(self._under_way.popleft().result())
            self._under_way.append(uploaders.submit(self._upload, number, part))
        done.extend(future.result() for future in self._under_way)
        with translated(self._key):
            self._bucket.client.complete_multipart_upload(
                **self._bucket.place(self._key),
                UploadId=self._id,
                MultipartUpload={"Parts": done},
            )

    def abort(self) -> None:
        """Have the server forget the parts; one that can't be reached keeps them."""
        wait(self._under_way)
        with suppress(BlobMissing, BlobStoreUnavailable), translated(self._key):
            self._bucket.client.abort_multipart_upload(
                **self._bucket.place(self._key), UploadId=self._id
            )

    def _upload(self, number: int, part: bytes) -> "CompletedPartTypeDef":
        with translated(self._key):
            answer = self._bucket.client.upload_part(
                **self._bucket.place(self._key), UploadId=self._id, PartNumber=number, Body=part
            )
        return {"ETag": answer["ETag"], "PartNumber": number}
