"""Bodies that went by reference, copied into the archive's own blob store before it is pruned."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from packhorse.blobs.api import BlobCorrupt, BlobMissing, BlobStore, package_key
from packhorse.blobs.digest import Verified
from packhorse.blobs.open import open_blobs

MISSING = "body missing: "
"""How the reason begins of a package whose body was gone before it could be archived."""


class Bodies:
    """Copies from the product's blob store to the archive's, both opened when first needed."""

    def __init__(self, source_url: str, target_url: str) -> None:
        self._urls = source_url, target_url
        self._stores: tuple[BlobStore, BlobStore] | None = None

    def keep(self, package: dict[str, Any]) -> str | None:
        """Copy the body of a row of `schemas.PACKAGES`, unless it is inline or there already.

        Returns why it can't be kept, or None. Memory is constant whatever the length. Raises
        `BlobStoreUnavailable`: then nobody knows yet whether the body is there.
        """
        key = package["body_reference"]
        if key is None:
            return None
        if key != package_key(package["package_id"]):
            return f"{MISSING}the package refers to a blob that is not its own"
        source, target = self._opened()
        if target.head(key) is not None:
            return None
        try:
            _copy(key, source, target, package["body_sha256"], package["body_length"])
        except BlobMissing:
            return f"{MISSING}{key} is no longer in the blob store"
        except BlobCorrupt as error:
            return f"{MISSING}{error}"
        return None

    def close(self) -> None:
        """Let go of the stores."""
        for store in self._stores or ():
            store.close()

    def _opened(self) -> tuple[BlobStore, BlobStore]:
        if self._stores is None:
            source, target = self._urls
            self._stores = open_blobs(source), open_blobs(target)
        return self._stores


def _copy(key: str, source: BlobStore, target: BlobStore, sha256: str, length: int) -> None:
    target.put(key, Verified(source.get(key), sha256=sha256, length=length))


@contextmanager
def opened(source_url: str, target_url: str) -> Iterator[Bodies]:
    """Open a copier and close it."""
    bodies = Bodies(source_url, target_url)
    try:
        yield bodies
    finally:
        bodies.close()
