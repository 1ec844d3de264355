"""Blobs in S3, or in what speaks its protocol.

Nothing rests on conditional writes, which some servers accept and ignore: a key stands for one
content, so writing it twice changes nothing. An upload that is cut short never becomes an object.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from packhorse.blobs.api import (
    CHUNK_BYTES,
    RENEWED_MS,
    BlobMissing,
    BlobStoreUnavailable,
    InvalidBlobKey,
    InvalidBlobsUrl,
    StoredBlob,
    Written,
    check_key,
    promised_digest,
)
from packhorse.blobs.digest import Verified

if TYPE_CHECKING:
    from obstore import ObjectMeta

_PART_BYTES = 8 * 1024 * 1024
"""One request carries at most this much; a server allows 10,000 parts, which makes 80 GiB."""

_UPLOADS = 4
_SMALL_UPLOADS = 16
_CLOCK_KEY = "clock/now"
_RENEWING = "renewing/"
_COPIED_BYTES = 4 * 1024**3
"""A server copies up to 5 GiB by itself; what is larger is uploaded again."""
_CLOCK_S = 30.0
_OPTIONS = {"endpoint", "region", "allow_http"}


class S3Blobs:
    """A `BlobStore` in one bucket, below a prefix that may be empty."""

    def __init__(self, store: S3Store) -> None:
        self._store = store
        self._clock = _StoreClock(self.now_ms)
        self._uploaders = ThreadPoolExecutor(_SMALL_UPLOADS, thread_name_prefix="s3-upload")

    def put(self, key: str, chunks: Iterable[bytes], *, sha256: str | None = None) -> Written:
        """Upload in one request what fits into one part, else part by part."""
        verified = Verified(chunks, sha256=promised_digest(check_key(key), sha256))
        found = self.head(key)
        if found is None or (key.startswith("binaries/") and self._is_old(found)):
            self._upload(key, iter(verified))  # over the same bytes, if there are any
        else:
            for _ in verified:  # kept as it is, but the promise is checked
                pass
        return Written(key, verified.length, verified.sha256, created=found is None)

    def put_many(self, binaries: Mapping[str, bytes]) -> None:
        """Upload several at a time."""
        for _ in self._uploaders.map(self._put_small, binaries.items()):
            pass

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Request part after part, so that a slow consumer holds no request open."""
        found = self.head(check_key(key))
        if found is None:
            raise BlobMissing(f"the bucket has no {key}")
        last = found.length if end is None else min(end, found.length)
        for position in range(start, last, _PART_BYTES):
            part = (position, min(position + _PART_BYTES, last))
            with _translated(key):
                yield from obstore.get(self._store, key, options={"range": part}).stream(
                    CHUNK_BYTES
                )

    def head(self, key: str) -> StoredBlob | None:
        """Ask for the object's metadata."""
        check_key(key)
        try:
            with _translated(key):
                return _stored(obstore.head(self._store, key))
        except BlobMissing:
            return None

    def delete(self, key: str) -> None:
        """Delete the object."""
        with suppress(BlobMissing), _translated(check_key(key)):
            obstore.delete(self._store, key)

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
        self.delete(key)
        if key.startswith("binaries/"):
            with suppress(BlobMissing), _translated(key):
                obstore.delete(self._store, _aside(key))
        return True

    def list(self, prefix: str) -> Iterator[StoredBlob]:
        """List page after page."""
        folder = prefix.rpartition("/")[0] or None  # the client lists whole segments only
        with _translated(prefix):
            for page in obstore.list(self._store, folder):
                for found in map(_stored, page):
                    with suppress(InvalidBlobKey):  # a stranger's object
                        if check_key(found.key).startswith(prefix):
                            yield found

    def now_ms(self) -> int:
        """Write an object and ask when that was; whole seconds, as S3 keeps them."""
        with _translated(_CLOCK_KEY):
            obstore.put(self._store, _CLOCK_KEY, b"now")
            return _stored(obstore.head(self._store, _CLOCK_KEY)).modified_ms

    def check(self) -> None:
        """Write and read one object."""
        try:
            self.now_ms()
        except BlobMissing as error:
            raise BlobStoreUnavailable("the bucket does not exist; create it") from error

    def close(self) -> None:
        """End the upload threads."""
        self._uploaders.shutdown()

    def _is_old(self, found: StoredBlob) -> bool:
        return found.modified_ms + RENEWED_MS <= self._clock.now_ms()

    def _write_again(self, found: StoredBlob) -> None:
        if found.length > _COPIED_BYTES:
            digest = promised_digest(found.key)
            self._upload(found.key, iter(Verified(self.get(found.key), sha256=digest)))
            return
        aside = _aside(found.key)
        with _translated(found.key):
            obstore.copy(self._store, found.key, aside)
            obstore.copy(self._store, aside, found.key)
            obstore.delete(self._store, aside)

    def _put_small(self, item: tuple[str, bytes]) -> None:
        key, content = item
        with _translated(check_key(key)):
            obstore.put(self._store, key, content, use_multipart=False)

    def _upload(self, key: str, chunks: Iterator[bytes]) -> None:
        failures: list[BaseException] = []
        noted = _noting(chunks, failures)
        first = b"".join(_take(noted, _PART_BYTES))
        try:
            with _translated(key):
                if len(first) < _PART_BYTES:
                    obstore.put(self._store, key, first, use_multipart=False)
                else:
                    parts = chain([first], noted)
                    obstore.put(
                        self._store,
                        key,
                        parts,
                        chunk_size=_PART_BYTES,
                        max_concurrency=_UPLOADS,
                    )
        except Exception:
            for failure in failures:  # the source's own error goes to its caller untranslated
                raise failure from None
            raise


class _StoreClock:
    """The store's clock, asked now and then; in between time passes as this machine counts it."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._asked: tuple[float, int] | None = None

    def now_ms(self) -> int:
        """Return the store's time, late by at most what asking takes."""
        elapsed = time.clock_gettime(time.CLOCK_BOOTTIME)
        asked = self._asked
        if asked is None or not 0 <= elapsed - asked[0] < _CLOCK_S:
            asked = self._asked = (elapsed, self._ask())
        return asked[1] + round((elapsed - asked[0]) * 1000)


def open_s3(url: str) -> S3Blobs:
    """Return the store that `s3://bucket/prefix?endpoint=…&region=…&allow_http=true` names.

    Raises `InvalidBlobsUrl`.
    """
    parsed = urlsplit(url)
    if not parsed.hostname or parsed.username or parsed.password:
        raise InvalidBlobsUrl("write s3://bucket/prefix; credentials come from the environment")
    options = _options(parsed.query)
    allow_http = options.get("allow_http") == "true"
    store = S3Store(
        parsed.netloc,
        prefix=unquote(parsed.path).strip("/") or None,
        region=options.get("region", "us-east-1"),
        **_endpoint(options.get("endpoint"), allow_http),
        client_options={"allow_http": allow_http, "timeout": "60s", "connect_timeout": "5s"},
        retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=20)},
    )
    return S3Blobs(store)


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - _OPTIONS:
        raise InvalidBlobsUrl(f"an S3 blob store has no option {min(unknown)!r}")
    return options


def _endpoint(endpoint: str | None, allow_http: bool) -> dict[str, Any]:
    """Return the setting; without one, obstore takes the environment's or Amazon's."""
    if endpoint is None:
        return {}
    if "@" in endpoint:  # not quoted: a password would be, and by the client's errors too
        raise InvalidBlobsUrl(
            "leave the user out of the S3 endpoint; credentials come from the environment"
        )
    if endpoint.startswith("https://") or (allow_http and endpoint.startswith("http://")):
        return {"endpoint": endpoint}
    raise InvalidBlobsUrl("the S3 endpoint needs https://, or http:// with allow_http=true")


def _aside(key: str) -> str:
    """Return where a blob's copy lies while it is renewed."""
    return _RENEWING + key.rpartition("/")[2]


def _stored(meta: "ObjectMeta") -> StoredBlob:
    return StoredBlob(meta["path"], meta["size"], round(meta["last_modified"].timestamp() * 1000))


def _take(chunks: Iterator[bytes], length: int) -> Iterator[bytes]:
    """Pass on chunks until `length` bytes have passed, or a chunk more."""
    taken = 0
    while taken < length and (chunk := next(chunks, None)) is not None:
        taken += len(chunk)
        yield chunk


def _noting(chunks: Iterator[bytes], failures: list[BaseException]) -> Iterator[bytes]:
    try:
        yield from chunks
    except Exception as error:
        failures.append(error)
        raise


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Turn the client's errors into the store's."""
    try:
        yield
    except FileNotFoundError as error:
        raise BlobMissing(f"the bucket has no {key}, or does not exist") from error
    except (BaseError, OSError) as error:
        summary = str(error).split("\n", 1)[0][:300]
        raise BlobStoreUnavailable(f"the S3 store fails at {key}: {summary}") from error
