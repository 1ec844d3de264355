"""The AWS servers that give credentials: STS, the container's and the machine's, over HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

from tests.harness.answering import answering

_MACHINE_TOKEN = "X-aws-ec2-metadata-token"
_STS = """<AssumeRoleWithWebIdentityResponse
 xmlns="https://sts.amazonaws.com.example/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>{AccessKeyId}</AccessKeyId><SecretAccessKey>{SecretAccessKey}</SecretAccessKey>
<SessionToken>{Token}</SessionToken><Expiration>{Expiration}</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""

_REFUSED = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"


@dataclass
class CredentialServer:
    """Gives `keys` to whoever shows `token`; what it gives expires after `valid_s`."""

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
