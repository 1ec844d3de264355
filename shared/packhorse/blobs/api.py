"""The blob store's promises: create-only, streamed, verified on read (R7, R21, R30).

Three kinds of key live in it: `binaries/<2 hex>/<sha256>` for content binaries, named by what they
hold, `packages/<2 hex>/<package id>` for packages too large for the journal, and
`snapshots/<2 hex>/<name>` for the parts and manifests of snapshots.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from packhorse.errors import Permanent, Transient

CHUNK_BYTES = 256 * 1024
"""How much a stream carries at a time, at most about."""

RENEWED_MS = 3600 * 1000
"""A blob that is younger need not be renewed; the safety age of a sweep is longer by far."""

_KEY = re.compile(r"(binaries|packages|snapshots)/[0-9a-f]{2}/[0-9A-Za-z-]{1,120}")


class BlobMissing(Transient):
    """The store does not have the key, or not yet (a store may show new blobs late)."""


class BlobCorrupt(Permanent):
    """The bytes are not those that the digest or the length promised."""


class BlobStoreUnavailable(Transient):
    """The store can't be reached or refuses service; nothing half-written is visible."""


class InvalidBlobKey(Permanent):
    """The key is none that packhorse makes; nothing was read or written."""


class InvalidBlobsUrl(Permanent):
    """The URL names no blob store; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What the store knows of a blob; `modified_ms` is by the store's own clock."""

    key: str
    length: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class WrittenBlob:
    """What a finished `put` has stored."""

    key: str
    length: int
    sha256: str
    """In hex, of the stream that was given; so is `length`, also where nothing was created."""
    created: bool
    """False when the key was there already, which is a success: its bytes are kept."""


class BlobStore(Protocol):
    """A store of immutable blobs. Safe to use from several threads."""

    def put(self, key: str, chunks: Iterable[bytes]) -> WrittenBlob:
        """Store a stream under `key`, visible only when whole and durable.

        Memory stays bounded whatever the length. When the bytes differ from the digest in a
        binary's key, raises `BlobCorrupt` and leaves nothing behind. An error of `chunks` is
        passed on, and leaves nothing behind either. A binary that was there already is renewed,
        see `renew`.
        """
        ...

    def put_many(self, binaries: Mapping[str, bytes]) -> None:
        """Store many small binaries by their keys, at the price of one flush for all of them.

        When it returns, all are visible and durable; after an error, some may be. The caller has
        computed the keys from the bytes; use it with as much as may lie in memory. Those that
        were there already are renewed.
        """
        ...

    def renew(self, key: str) -> StoredBlob | None:
        """Make a blob at most `RENEWED_MS` old, and return what the store then knows of it.

        None when it is not there. Whoever refers to a binary, or to a snapshot's part, that he did
        not put must renew it before: none is removed that was renewed since it was found unused
        (R22).
        """
        ...

    def delete_unless_renewed(self, key: str, modified_ms: int) -> bool:
        """Remove `key` if it was last written or renewed at `modified_ms`; false if it is kept.

        Removing what is not there is a success. A folder decides and removes in one step. S3 has
        no such step: it is asked directly before.
        """
        ...

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Stream the bytes from `start` up to, not including, `end`, in chunks of bounded size.

        Raises `BlobMissing` when the first chunk is asked for. Whoever needs the whole blob
        verifies it (`packhorse.blobs.digest`); a part can't be.
        """
        ...

    def head(self, key: str) -> StoredBlob | None:
        """Return what the store knows of `key`, or None."""
        ...

    def delete(self, key: str) -> None:
        """Remove `key`; removing what is not there is a success."""
        ...

    def list(self, prefix: str) -> Iterator[StoredBlob]:
        """Yield every blob whose key begins with `prefix`, without holding all of them."""
        ...

    def now_ms(self) -> int:
        """Return the store's own time, against which `modified_ms` gives an age (R28)."""
        ...

    def check(self) -> None:
        """Prove that the store can be read and written. Raises `BlobStoreUnavailable`."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def binary_key(sha256: str) -> str:
    """Return the key of a content binary."""
    return f"binaries/{sha256[:2]}/{sha256}"


def package_key(package_id: str) -> str:
    """Return the key of a stored package; its id ends with random hex, which spreads the keys."""
    return f"packages/{package_id[-2:]}/{package_id}"


def promised_digest(key: str) -> str | None:
    """Return the digest that the bytes of `key` must have, or None when it names none."""
    return key.rpartition("/")[2] if key.startswith("binaries/") else None


def check_key(key: str) -> str:
    """Return `key`, or raise `InvalidBlobKey`: a reference is never a URL or a path."""
    if _KEY.fullmatch(key) is None:
        raise InvalidBlobKey(f"{key[:80]!r} is no key of a packhorse blob")
    return key
