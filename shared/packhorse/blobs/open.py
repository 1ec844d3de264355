"""From a URL to the blob store that it names."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from packhorse.blobs.api import BlobStore, InvalidBlobsUrl


def open_blobs(url: str) -> BlobStore:
    """Return the store at a folder path, `file:///…` or `s3://bucket/prefix?endpoint=…&region=…`.

    A folder is created, for its owner only, unless it is there. S3 takes credentials as the AWS
    tools do (environment, container, instance); `allow_http=true` permits an endpoint without
    TLS. Raises `InvalidBlobsUrl` or `BlobStoreUnavailable`.
    """
    parsed = urlsplit(url)
    if parsed.scheme == "s3":
        from packhorse.blobs.s3 import open_s3

        return open_s3(url)
    if parsed.scheme not in ("", "file") or parsed.netloc not in ("", "localhost"):
        raise InvalidBlobsUrl(f"{parsed.scheme}://… is no blob store; use a folder or s3://bucket")
    if parsed.query or parsed.fragment or not parsed.path:
        raise InvalidBlobsUrl("a blob folder is a plain path; leave out what follows ? or #")
    from packhorse.blobs.filesystem import FilesystemBlobs

    return FilesystemBlobs(Path(unquote(parsed.path) if parsed.scheme else url))
