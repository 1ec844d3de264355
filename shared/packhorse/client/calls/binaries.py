"""Binaries of any size: sent and read in parts, so that memory never holds a large one whole."""

import hashlib
import io
from collections.abc import Iterable, Iterator
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, cast

from packhorse.client.errors import Misused, Refused, Unreadable
from packhorse.client.exchange import (
    Answer,
    Document,
    Operation,
    Request,
    Work,
    quoted,
    requested,
    segment,
    with_query,
)

PART_BYTES = 4 * 1024**2
_CHUNK_BYTES = 256 * 1024
_BEHIND_THE_END = 416


def put_binary(
    content: bytes | IO[bytes] | Iterable[bytes], media_type: str = "application/octet-stream"
) -> Operation[Document]:
    """Store bytes, and return how a node names them: `digest`, `length`, `media_type`.

    A file, opened for bytes, is read from where it stands to its end: once for its digest, once for
    each try; it stays open. A pipe, and an iterator of chunks, can be read once only: they are
    copied to a temporary file first. Raises `Misused` for a file that changes meanwhile, and
    `OSError` where one can't be read.
    """
    with SpooledTemporaryFile(max_size=PART_BYTES) as copy:
        source: _Source = yield Work(partial(_Source, content, copy))
        yield from requested(
            Request(
                "PUT",
                _blob(source.digest),
                "content",
                content=source.chunks,
                headers={"Content-Length": str(source.length)},
            )
        )
    return Document(digest=source.digest, length=source.length, media_type=media_type)


class _Source:
    """Bytes that can be sent more than once, with their digest and length."""

    def __init__(self, content: bytes | IO[bytes] | Iterable[bytes], copy: IO[bytes]) -> None:
        """Read all of it; `copy` gets what can be read once only."""
        self.length, found = 0, hashlib.sha256()
        try:
            self._file = _seekable(content, copy)
            self._start = self._file.tell()
            for chunk in _chunks_of(self._file):
                found.update(chunk)
                self.length += len(chunk)
        except TypeError as error:
            raise Misused(f"a binary is bytes, or comes as bytes: {error}") from error
        self.digest = f"sha256:{found.hexdigest()}"

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes once more, as many as there were. Raises `Misused` for others."""
        self._file.seek(self._start)
        left = self.length
        for chunk in _chunks_of(self._file):
            left -= len(chunk)
            if left < 0:
                break
            yield chunk
        if left:
            raise Misused(f"the file has changed since it was read: it had {self.length} bytes")


def _seekable(content: bytes | IO[bytes] | Iterable[bytes], copy: IO[bytes]) -> IO[bytes]:
    if isinstance(content, bytes | bytearray | memoryview):
        return io.BytesIO(content)
    file = cast(IO[bytes], content) if hasattr(content, "read") else None
    if file is not None and file.seekable():
        return file
    for chunk in content if file is None else _chunks_of(file):
        copy.write(chunk)
    copy.seek(0)
    return copy


def _chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")


def read_binary(path: str, name: str = "data") -> Iterator[Operation[bytes]]:
    """Yield the bytes that a node has under a name, in parts of up to 4 MiB.

    Each part is asked for until it is there, as every call is; all are of the bytes that the node
    had at the first. Who gets the last part has had the right bytes: raises `Unreadable` in its
    place when digest or length are wrong, and `NotFound`.
    """
    return _Reading(with_query(f"/binaries{quoted(path)}", name=name)).parts()


def read_blob(digest: str) -> Iterator[Operation[bytes]]:
    """Yield the bytes of a digest (`sha256:…`), as `read_binary` does."""
    return _Reading(_blob(digest), digest).parts()


def binary(path: str, name: str = "data") -> Operation[bytes]:
    """Return the bytes that a node has under a name, all of them; raises as `read_binary`."""
    parts = []
    for part in read_binary(path, name):
        parts.append((yield from part))
    return b"".join(parts)


class _Reading:
    """One binary: how much of it has come, and what comes next."""

    def __init__(self, url: str, digest: str = "") -> None:
        self._url, self._digest, self._found = url, digest, hashlib.sha256()
        self._at, self._length = 0, -1

    def parts(self) -> Iterator[Operation[bytes]]:
        """Yield an operation for each part; each is done before the next."""
        while self._at != self._length:
            yield self._part()

    def _part(self) -> Operation[bytes]:
        last = self._at + PART_BYTES - 1
        headers = {"Range": f"bytes={self._at}-{last}", "Accept-Encoding": "identity"}
        try:
            answer: Answer = yield Request("GET", self._url, "content", headers=headers)
        except Refused as error:
            if error.status != _BEHIND_THE_END or self._at:
                raise
            self._length = 0
            return b""
        self._look_at(answer)
        yield Work(partial(self._found.update, answer.content))
        self._at += len(answer.content)
        if self._at == self._length and f"sha256:{self._found.hexdigest()}" != self._digest:
            raise Unreadable(f"{answer.url} gave other bytes than those of {self._digest}")
        return answer.content

    def _look_at(self, answer: Answer) -> None:
        """Learn from the first part how many bytes of which digest there are."""
        unit, _, part = answer.headers.get("content-range", "").partition(" ")
        begins, _, length = part.partition("/") if unit == "bytes" else ("0-", "", "")
        digest = answer.headers.get("etag", "").removeprefix("W/").strip('"')
        self._digest = self._digest or digest
        if begins.partition("-")[0] != str(self._at) or digest != self._digest:
            raise Unreadable(f"{answer.url} gave another part, or of other bytes, than was asked")
        self._length = int(length or len(answer.content))
        self._url = _blob(digest)


def _blob(digest: str) -> str:
    return f"/blobs/{segment(digest)}"
