"""Uploads in parts that break: they are aborted, and what broke them is raised."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from packhorse.blobs import s3


class FakeBucket:
    """A bucket that takes parts, and answers an abort with an error if it is given one."""

    def __init__(self, answer: Exception | None) -> None:
        self.client, self._answer, self.aborted = self, answer, list[str]()

    def place(self, key: str) -> dict[str, str]:
        return {"Bucket": "bucket", "Key": key}

    def create_multipart_upload(self, **_: object) -> dict[str, str]:
        return {"UploadId": "upload-1"}

    def upload_part(self, **_: object) -> dict[str, str]:
        return {"ETag": "etag"}

    def abort_multipart_upload(self, **upload: str) -> None:
        self.aborted.append(upload["UploadId"])
        if self._answer is not None:
            raise self._answer


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    "answer",
    [
        None,
        EndpointConnectionError(endpoint_url="http://away"),
        ClientError({"Error": {"Code": "NoSuchBucket"}}, "AbortMultipartUpload"),
    ],
)
def test_an_upload_that_breaks_is_aborted_and_says_what_broke_it(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, answer: Exception | None
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 4)

    def broken() -> Iterator[bytes]:
        yield b"part"
        raise error

    bucket: Any = FakeBucket(answer)
    with ThreadPoolExecutor() as uploaders, pytest.raises(type(error)) as raised:
        s3.upload_parts(bucket, uploaders, "binaries/key", broken())
    assert raised.value is error
    assert bucket.aborted == ["upload-1"]
