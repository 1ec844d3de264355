"""A token issuer with a real JWKS endpoint on loopback."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.harness.answering import answering

NAME = "https://issuer.example"
AUDIENCE = "packhorse"


class Issuer:
    """Signs tokens; `broken` makes its endpoint fail, `fetches` counts its visitors.

    Visitors wait while `answers` is not set.
    """

    def __init__(self) -> None:
        self.url = ""
        self.broken = False
        self.fetches = 0
        self.answers = threading.Event()
        self.answers.set()
        self.keys: dict[str, tuple[str, Any]] = {
            "rsa": ("RS256", rsa.generate_private_key(65537, 2048)),
            "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
            "ed": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
        }
        self.published = set(self.keys)

    def token(
        self, kid: str = "rsa", *, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        algorithm, key = self.keys[kid]
        payload = {
            "iss": NAME,
            "aud": AUDIENCE,
            "sub": "robot",
            "exp": int(time.time()) + 300,
            "scope": "queues:read",
            **claims,
        }
        kept = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(kept, key, algorithm=algorithm, headers={"kid": kid, **(header or {})})

    def jwks(self) -> dict[str, Any]:
        kinds: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}
        keys = []
        for kid in sorted(self.published):
            algorithm, key = self.keys[kid]
            public = kinds[algorithm].to_jwk(key.public_key(), as_dict=True)
            keys.append({**public, "kid": kid, "use": "sig", "alg": algorithm})
        return {"keys": keys}


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches += 1
            issuer.answers.wait(30)
            body = json.dumps(issuer.jwks()).encode()
            self.send_response(500 if issuer.broken else 200)
            self.end_headers()
            self.wfile.write(body)

    with answering(Handler) as url:
        issuer.url = f"{url}/jwks"
        yield issuer
