"""The client of one bucket: credentials, endpoint and region as the AWS tools take them."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from packhorse import __version__
from packhorse.blobs.api import BlobMissing, BlobStoreUnavailable, InvalidBlobsUrl

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials
    from types_boto3_s3 import S3Client

CONNECT_S = 5
ANSWER_S = 60
"""A server that does not answer for so long has stalled."""

RETRIED_S = 20
"""No request is sent again later than this after its first try; whoever asked tries again."""

_ATTEMPTS = 5
_CONNECTIONS = 32
_OPTIONS = {"endpoint", "region", "allow_http"}
_MISSING = {"404", "NoSuchKey", "NoSuchBucket"}
_STARTED = "packhorse_started"


class ObjectPlace(TypedDict):
    """An object's place, as the client's calls name it."""

    Bucket: str
    Key: str


class Bucket:
    """A bucket's part and the client that reaches it. Safe to use from several threads.

    The client is made when it is first needed: finding credentials may ask a server, and one
    that does not answer then is asked again by the next request.
    """

    def __init__(self, name: str, prefix: str, options: Mapping[str, str]) -> None:
        """Read the AWS configuration. Raises `InvalidBlobsUrl` for one that can't be used."""
        self.name = name
        self.prefix = prefix
        self._endpoint = options.get("endpoint")
        self._lock = threading.Lock()
        self._client: S3Client | None = None
        core = botocore.session.get_session()
        try:
            core.register_component("data_loader", _descriptions())
            self._session = boto3.session.Session(botocore_session=core)
            region = options.get("region") or self._session.region_name
            self.attempts: int = core.get_config_variable("max_attempts") or _ATTEMPTS
            ca_bundle = core.get_config_variable("ca_bundle")
            self.authorities = Path(ca_bundle).read_bytes() if ca_bundle else None
        except (BotoCoreError, OSError, ValueError) as error:
            raise InvalidBlobsUrl(f"the AWS configuration can't be used: {error}") from error
        self.region = region or os.environ.get("AWS_REGION") or "us-east-1"

    @property
    def client(self) -> "S3Client":
        """The client. Raises `BlobStoreUnavailable` where nothing gives it credentials."""
        if self._client is None:
            with self._lock, translated("its configuration"):
                if self._client is None:
                    self._client = self._made()
        return self._client

    @property
    def in_host_name(self) -> bool:
        """Whether the configuration wants the bucket in the host's name, not in the path."""
        s3: Mapping[str, str] = self.client.meta.config.s3 or {}  # type: ignore[attr-defined]
        return s3.get("addressing_style") == "virtual"

    def credentials(self) -> "ReadOnlyCredentials":
        """Return the credentials, renewed where they would expire soon.

        Raises `BlobStoreUnavailable` where nothing gives any.
        """
        with translated("its credentials"):
            if (found := self._session.get_credentials()) is None:
                raise NoCredentialsError
            return found.get_frozen_credentials()

    def place(self, key: str) -> ObjectPlace:
        """Return where `key` is, below the prefix."""
        return {"Bucket": self.name, "Key": self.prefix + key}

    def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            self._client.close()

    def _made(self) -> "S3Client":
        if self._session.get_credentials() is None:
            raise NoCredentialsError
        try:
            client = self._session.client(
                "s3",
                region_name=self.region,
                endpoint_url=self._endpoint,
                config=_config(self.attempts),
            )
        except ValueError as error:  # of AWS_ENDPOINT_URL
            raise BlobStoreUnavailable(f"the AWS configuration can't be used: {error}") from error
        client.meta.events.register("before-call.s3", _before_call)
        client.meta.events.register_first("needs-retry.s3", _no_late_retry)  # type: ignore[arg-type]
        return client


@cache
def _descriptions() -> Any:
    """Return what reads the descriptions of S3 and its endpoints, which takes 100 ms, once."""
    return botocore.session.get_session().get_component("data_loader")


def _config(attempts: int) -> Config:
    """Return what this program decides; the rest is the user's, or the client's default."""
    return Config(
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        retries={"total_max_attempts": attempts},
        user_agent=f"packhorse/{__version__}",  # the long one is put together for each request
        # Older servers refuse or misread the checksums that newer clients add by themselves.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


def _before_call(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Note when it began, and send a body at once and in one piece, which is cheaper."""
    context[_STARTED] = time.monotonic()
    params["headers"].pop("Expect", None)
    if hasattr(params["body"], "getvalue"):
        params["body"] = params["body"].getvalue()


def _no_late_retry(request_dict: Mapping[str, Any], **_: object) -> bool | None:
    """Return False when it is too late to try again, and None to leave that to the client."""
    late = time.monotonic() - request_dict["context"][_STARTED] > RETRIED_S
    return False if late else None


def bucket_of(url: str) -> Bucket:
    """Return the bucket that `s3://bucket/prefix?endpoint=…&region=…&allow_http=true` names.

    What the URL leaves out comes from the environment and the AWS configuration files. Raises
    `InvalidBlobsUrl`.
    """
    parsed = urlsplit(url)
    if not parsed.hostname or parsed.username or parsed.password:
        raise InvalidBlobsUrl("write s3://bucket/prefix; credentials come from the environment")
    options = dict(parse_qsl(parsed.query, keep_blank_values=True))
    if unknown := options.keys() - _OPTIONS:
        raise InvalidBlobsUrl(f"an S3 blob store has no option {min(unknown)!r}")
    endpoint = options.get("endpoint")
    if endpoint is not None:
        _check_endpoint(endpoint, options.get("allow_http") == "true")
    prefix = unquote(parsed.path).strip("/")
    return Bucket(parsed.netloc, f"{prefix}/" if prefix else "", options)


def _check_endpoint(endpoint: str, allow_http: bool) -> None:
    if "@" in endpoint:  # not quoted: a password would be, and by the client's errors too
        raise InvalidBlobsUrl(
            "leave the user out of the S3 endpoint; credentials come from the environment"
        )
    if not (endpoint.startswith("https://") or (allow_http and endpoint.startswith("http://"))):
        raise InvalidBlobsUrl("the S3 endpoint needs https://, or http:// with allow_http=true")


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Turn the client's errors into the store's."""
    try:
        yield
    except NoCredentialsError as error:
        raise BlobStoreUnavailable(
            "nothing gives credentials for S3; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give the container or the machine a role"
        ) from error
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _MISSING:
            raise BlobMissing(f"the bucket has no {key}, or does not exist") from error
        raise unavailable(key, str(error)) from error
    except BotoCoreError as error:
        raise unavailable(key, str(error)) from error


def unavailable(key: str, said: str) -> BlobStoreUnavailable:
    """Return the store's error for what a client said, in one line."""
    summary = said.split("\n", 1)[0][:300]
    return BlobStoreUnavailable(f"the S3 store fails at {key}: {summary}")
