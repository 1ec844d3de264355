"""Whole small objects and parts of large ones: one request each, by the faster of two clients.

boto3 takes several times the processor time for such a request (ADR 0042). What the requests need
to know, credentials, endpoint and retries, is boto3's; its own client does everything else.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from packhorse.blobs.api import CHUNK_BYTES, BlobMissing, StoredBlob
from packhorse.blobs.s3_client import ANSWER_S, CONNECT_S, RETRIED_S, Bucket, unavailable

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")


class Objects:
    """Requests for single objects of a bucket. Safe to use from several threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._made: S3Store | None = None

    def put(self, key: str, content: bytes) -> None:
        """Store what fits into one request."""
        store = self._store
        with _translated(key):
            obstore.put(store, key, content, use_multipart=False)

    def read(self, key: str, start: int, end: int) -> Iterator[bytes]:
        """Stream the bytes from `start` up to `end`, asking again for those that do not come."""
        store = self._store
        with _translated(key):
            part = obstore.get(store, key, options={"range": (start, end)})
            yield from part.stream(CHUNK_BYTES)

    def head(self, key: str) -> StoredBlob:
        """Return the object's metadata. Raises `BlobMissing`."""
        store = self._store
        with _translated(key):
            meta = obstore.head(store, key)
        modified_ms = round(meta["last_modified"].timestamp() * 1000)
        return StoredBlob(meta["path"], meta["size"], modified_ms)

    @property
    def _store(self) -> S3Store:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> S3Store:
        bucket = self._bucket
        endpoint = bucket.client.meta.endpoint_url
        if bucket.in_host_name:
            parsed = urlsplit(endpoint)
            endpoint = f"{parsed.scheme}://{bucket.name}.{parsed.netloc}"
        return S3Store(
            bucket.name,
            prefix=bucket.prefix.rstrip("/") or None,
            region=bucket.region,
            endpoint=endpoint,
            virtual_hosted_style_request=bucket.in_host_name,
            credential_provider=self._credentials,
            client_options=self._client_options(endpoint),
            retry_config={
                "max_retries": bucket.attempts - 1,
                "retry_timeout": timedelta(seconds=RETRIED_S),
            },
        )

    def _client_options(self, endpoint: str) -> "ClientConfig":
        options: ClientConfig = {
            "allow_http": endpoint.startswith("http://"),
            "timeout": f"{ANSWER_S}s",
            "connect_timeout": f"{CONNECT_S}s",
        }
        if self._bucket.authorities is not None:
            options["root_certificate"] = self._bucket.authorities
        return options

    def _credentials(self) -> "S3Credential":
        """Return what boto3 holds now, and be asked again soon: it knows when they expire."""
        found = self._bucket.credentials()
        return {
            "access_key_id": found.access_key or "",
            "secret_access_key": found.secret_key or "",
            "token": found.token or None,
            "expires_at": datetime.now(UTC),
        }


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Turn the client's errors into the store's."""
    try:
        yield
    except FileNotFoundError as error:
        raise BlobMissing(f"the bucket has no {key}, or does not exist") from error
    except (BaseError, OSError) as error:
        raise unavailable(key, _said(str(error))) from error


def _said(text: str) -> str:
    """Return what the server said, where it is in the client's text, or that text."""
    found = (_CODE.search(text), _MESSAGE.search(text))
    return ": ".join(match.group(1) for match in found if match) or text
