"""A blob store in memory, for bodies that are too large for a record."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from packhorse.blobs.api import BlobMissing, WrittenBlob


class MemoryBlobs:
    """Create-only, as the port promises."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def put(self, key: str, chunks: Iterable[bytes]) -> WrittenBlob:
        data = b"".join(chunks)
        created = self.stored.setdefault(key, data) is data
        return WrittenBlob(key, len(data), hashlib.sha256(data).hexdigest(), created)

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        if key not in self.stored:
            raise BlobMissing(key)
        data = self.stored[key][start:end]
        for at in range(0, len(data), 50_000):
            yield data[at : at + 50_000]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a package needs no {name} of the blob store")
