"""Streams that carry their own check: counted and hashed as they pass."""

import hashlib
from collections.abc import Iterable, Iterator

from packhorse.blobs.api import BlobCorrupt, BlobStore, WrittenBlob


class Verified:
    """Passes chunks on and knows what passed; after the last one, holds it against the promise.

    Iterating raises `BlobCorrupt` in place of the end when digest or length differ, and as soon
    as the length is exceeded, so a consumer that finishes has the right bytes (R7, R30).
    """

    def __init__(
        self, chunks: Iterable[bytes], *, sha256: str | None = None, length: int | None = None
    ) -> None:
        self._chunks = chunks
        self._expected = sha256
        self._expected_length = length
        self._hash = hashlib.sha256()
        self.length = 0

    @property
    def sha256(self) -> str:
        """The digest, in hex, of what has passed so far."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._hash.update(chunk)
            self.length += len(chunk)
            if self._expected_length is not None and self.length > self._expected_length:
                raise BlobCorrupt(f"there are more than the promised {self._expected_length} bytes")
            yield chunk
        if self._expected_length not in (None, self.length):
            raise BlobCorrupt(f"{self._expected_length} bytes were promised, not {self.length}")
        if self._expected not in (None, self.sha256):
            raise BlobCorrupt(f"sha256 {self._expected} was promised, the bytes have {self.sha256}")


def holds_what_was_put(blobs: BlobStore, written: WrittenBlob) -> bool:
    """Return whether a blob has the bytes that a `put` was given; it is read if it was there."""
    if written.created:
        return True
    try:
        for _ in Verified(blobs.get(written.key), sha256=written.sha256, length=written.length):
            pass
    except BlobCorrupt:
        return False
    return True
