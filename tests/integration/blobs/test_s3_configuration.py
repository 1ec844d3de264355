"""Credentials, endpoint and region of S3 as the AWS tools take them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from packhorse.blobs.api import BlobStore, BlobStoreUnavailable, InvalidBlobsUrl, package_key
from packhorse.blobs.open import open_blobs
from tests.harness.answering import answering
from tests.harness.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, running_s3
from tests.harness.waiting import eventually

_MACHINE_TOKEN = "X-aws-ec2-metadata-token"
_STS = """<AssumeRoleWithWebIdentityResponse
 xmlns="https://sts.amazonaws.com.example/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>{AccessKeyId}</AccessKeyId><SecretAccessKey>{SecretAccessKey}</SecretAccessKey>
<SessionToken>{Token}</SessionToken><Expiration>{Expiration}</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""

_REFUSED = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"


@dataclass
class CredentialServer:
    """STS of AWS, and the server of a container and of a machine, over HTTP.

    It gives `keys` to whoever shows `token`; what it gives expires after `valid_s`.
    """

    keys: tuple[str, str]
    token: str = "the-right-token"
    session_token: str = ""
    """The real S3 server of the tests knows none."""
    valid_s: float = 3600
    is_away: bool = False
    requested: list[str] = field(default_factory=list)
    url: str = ""

    def given(self) -> dict[str, str]:
        expires = datetime.now(UTC) + timedelta(seconds=self.valid_s)
        return {
            "Code": "Success",
            "AccessKeyId": self.keys[0],
            "SecretAccessKey": self.keys[1],
            "Token": self.session_token,
            "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def answer(self, method: str, path: str, shown: str | None, body: str) -> tuple[int, str]:
        """Return status and body of the answer to one request."""
        self.requested.append(path)
        if self.is_away:
            return 503, "away"
        if method == "PUT":  # the machine's: a token for what follows
            return 200, self.token
        if method == "POST":  # STS
            shown = parse_qs(body).get("WebIdentityToken", [None])[0]
        if shown != self.token:
            return 403, _REFUSED
        if method == "POST":
            return 200, _STS.format(**self.given())
        if path.endswith("/security-credentials/"):
            return 200, "the-role"
        return 200, json.dumps(self.given())


@contextmanager
def credential_server(keys: tuple[str, str]) -> Iterator[CredentialServer]:
    """Start one on a port of its own; end it afterwards."""
    served = CredentialServer(keys)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            shown = self.headers.get("Authorization") or self.headers.get(_MACHINE_TOKEN)
            status, text = served.answer(self.command, self.path, shown, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = do_POST = _answer  # noqa: N815

    with answering(Handler) as served.url:
        yield served


pytestmark = pytest.mark.s3

KEYS = (ACCESS_KEY, SECRET_KEY)
KEY = package_key("package-0123ab")
LARGE = bytes(9_000_000)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment in which nothing gives credentials, but what the test sets."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def credentials() -> Iterator[CredentialServer]:
    with credential_server(KEYS) as server:
        yield server


def is_usable(url: str) -> bool:
    """Whether a store does all that it may be asked: small and large, both clients."""
    store = open_blobs(url)
    try:
        _use(store)
    finally:
        store.close()
    return True


def _use(store: BlobStore) -> None:
    store.check()
    for content in (b"small", LARGE):
        store.put(KEY, [content])
        assert b"".join(store.get(KEY)) == content
        assert [blob.length for blob in store.list("packages/")] == [len(content)]
        store.delete(KEY)


def test_a_profile_gives_keys_endpoint_and_region(
    s3: S3Server, aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text(
        f"[distribution]\naws_access_key_id = {KEYS[0]}\naws_secret_access_key = {KEYS[1]}\n"
    )
    (tmp_path / "config").write_text(
        f"[profile distribution]\nregion = us-east-1\nendpoint_url = {s3.endpoint}\n"
    )
    aws.setenv("AWS_PROFILE", "distribution")
    assert is_usable(f"s3://{BUCKET}/profile")
    aws.setenv("AWS_PROFILE", "nobodys")
    with pytest.raises(InvalidBlobsUrl, match="nobodys"):
        open_blobs(f"s3://{BUCKET}")


def test_the_environment_gives_the_endpoint(s3: S3Server, aws: pytest.MonkeyPatch) -> None:
    aws.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    aws.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
    aws.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    aws.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    assert is_usable(f"s3://{BUCKET}/environment")
    aws.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(BlobStoreUnavailable, match="region"):
        is_usable(f"s3://{BUCKET}/environment")
    assert is_usable(f"s3://{BUCKET}/environment?region=us-east-1")
    aws.setenv("AWS_ENDPOINT_URL_S3", "nonsense")
    with pytest.raises(BlobStoreUnavailable, match="nonsense"):
        is_usable(f"s3://{BUCKET}/environment")


def test_a_web_identity_gives_keys(
    s3: S3Server, aws: pytest.MonkeyPatch, credentials: CredentialServer, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(credentials.token)
    aws.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    aws.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/distribution")
    aws.setenv("AWS_ENDPOINT_URL_STS", credentials.url)
    aws.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert is_usable(s3.url("web"))
    assert len(credentials.requested) == 1
    (tmp_path / "token").write_text("another")
    with pytest.raises(BlobStoreUnavailable, match="AssumeRoleWithWebIdentity"):
        is_usable(s3.url("web"))


def test_a_container_gives_keys_and_renews_them(
    s3: S3Server, aws: pytest.MonkeyPatch, credentials: CredentialServer
) -> None:
    aws.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{credentials.url}/keys")
    aws.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", credentials.token)
    credentials.keys, credentials.valid_s = (ACCESS_KEY, "not-yet-known"), 60
    store = open_blobs(s3.url("container"))
    with pytest.raises(BlobStoreUnavailable, match="SignatureDoesNotMatch"):
        store.check()
    credentials.keys, credentials.valid_s = KEYS, 3600
    eventually(lambda: _checks(store), "the keys are renewed")
    _use(store)
    store.close()


def _checks(store: BlobStore) -> bool:
    try:
        store.check()
    except BlobStoreUnavailable:
        return False
    return True


def test_credentials_that_were_away_are_asked_for_again(
    s3: S3Server, aws: pytest.MonkeyPatch, credentials: CredentialServer
) -> None:
    aws.delenv("AWS_EC2_METADATA_DISABLED")
    aws.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", credentials.url)
    aws.setenv("AWS_METADATA_SERVICE_TIMEOUT", "60")
    credentials.is_away = True
    store = open_blobs(s3.url("machine"))
    for call in (store.check, lambda: store.put(KEY, [LARGE]), lambda: list(store.list(""))):
        with pytest.raises(BlobStoreUnavailable, match="set AWS_PROFILE"):
            call()
    credentials.is_away = False
    _use(store)
    store.close()


def test_tls_by_the_users_own_authority(aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    aws.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    aws.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
    aws.setenv("AWS_MAX_ATTEMPTS", "1")
    with running_s3(tls=tmp_path) as server:
        url = f"s3://{BUCKET}?endpoint={server.endpoint}"
        with pytest.raises(BlobStoreUnavailable):
            is_usable(url)
        aws.delenv("AWS_MAX_ATTEMPTS")
        aws.setenv("AWS_CA_BUNDLE", str(tmp_path / "authority.pem"))
        assert is_usable(url)
    aws.setenv("AWS_CA_BUNDLE", str(tmp_path / "nowhere.pem"))
    with pytest.raises(InvalidBlobsUrl, match="nowhere"):
        open_blobs(url)


def test_temporary_keys_come_with_their_token(
    aws: pytest.MonkeyPatch, credentials: CredentialServer
) -> None:
    aws.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{credentials.url}/keys")
    aws.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", credentials.token)
    credentials.session_token = "token-of-an-hour"
    shown: list[str | None] = []

    class Refusing(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            shown.append(self.headers.get("x-amz-security-token"))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = _answer  # noqa: N815

    with answering(Refusing) as url:
        store = open_blobs(f"s3://{BUCKET}?endpoint={url}&allow_http=true")
        for call in (store.check, lambda: list(store.list(""))):
            with pytest.raises(BlobStoreUnavailable):
                call()
        store.close()
    assert shown == ["token-of-an-hour"] * 2
