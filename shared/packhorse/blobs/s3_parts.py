"""Large objects, uploaded part by part: several at a time, in bounded memory."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from packhorse.blobs.api import BlobMissing, BlobStoreUnavailable
from packhorse.blobs.s3_client import Bucket, translated

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
