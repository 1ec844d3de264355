"""Signatures of requests and responses between connectors (RFC 9421, RFC 9530).

HMAC-SHA256 over method, authority, path, query, content digest, content type and coding, with
creation, expiry, nonce and key id. The scheme is not signed: a proxy may end TLS. A response also
covers the request's target and signature, so that it answers no other request. One spelling of
everything is taken, which leaves nothing to disagree on.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from http_message_signatures import (
    HTTPMessageSignaturesException,
    HTTPMessageSigner,
    HTTPMessageVerifier,
    MappingKeyResolver,
    algorithms,
)

from packhorse.topology.connector_keys import MAX_SKEW_S, KeyId, SharedKeys
from packhorse.topology.rejection import Rejected, RejectionReason

LIFETIME_S = 60
_LABEL = "packhorse"
_ANY_SCHEME = "any"  # not signed; and one without a default port, which would be left out
_FIELDS = ("signature-input", "signature", "content-digest", "content-type", "content-encoding")
_TARGET = ("@method", "@authority", "@path", "@query")
_PARAMETERS = re.compile(
    r';created=([1-9][0-9]{0,11});keyid="([^"\\]{1,120})";alg="hmac-sha256";expires=([1-9][0-9]{0,11})'
    r';nonce="([A-Za-z0-9_-]{22})"'
)
_SIGNATURE = re.compile(_LABEL + r"=:([A-Za-z0-9+/]{43}=):")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What is signed of a request. `headers` have names in lower case."""

    method: str
    authority: str
    target: str
    """Path and query as they are sent."""
    headers: Mapping[str, str]

    @property
    def url(self) -> str:
        """The target in the form that the signature is computed from."""
        return f"{_ANY_SCHEME}://{self.authority}{self.target}"


@dataclass(frozen=True, slots=True)
class Response:
    """What is signed of a response."""

    status_code: int
    headers: Mapping[str, str]
    request: SignedRequest


Message = SignedRequest | Response


@dataclass(frozen=True, slots=True)
class Signed:
    """What a signature says that was found to be right; times are seconds since 1970."""

    key: KeyId
    secret: int
    """The position of the shared key that it was made with."""
    created: int
    expires: int
    nonce: str


def fields(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return those headers that take part in signatures. Raises `Rejected` for one sent twice."""
    found: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if lower in _FIELDS:
            if lower in found:
                raise Rejected(RejectionReason.MALFORMED, f"the header {lower} is there twice")
            found[lower] = value
    return found


def sign(
    message: Message, body: bytes, keys: SharedKeys, key: KeyId, now: float, *, secret: int = 0
) -> dict[str, str]:
    """Return the message's headers with Content-Digest, Signature-Input and Signature."""
    headers = dict(message.headers)
    target = _with_headers(message, headers)
    signer = HTTPMessageSigner(
        signature_algorithm=algorithms.HMAC_SHA256,
        key_resolver=_resolver(str(key), keys.signing_key(key, secret)),
    )
    created = int(now)
    signer.sign(
        target,
        key_id=str(key),
        created=datetime.fromtimestamp(created, UTC),
        expires=datetime.fromtimestamp(created + LIFETIME_S, UTC),
        nonce=secrets.token_urlsafe(16),
        label=_LABEL,
        covered_component_ids=_covered(message),
        body=body,
    )
    return {name.lower(): value for name, value in headers.items()}


def verify(message: Message, body: bytes, keys: SharedKeys) -> Signed:
    """Return what the message's signature says. Raises `Rejected`.

    Whether it is the time for it, and whether its nonce is new, is left to `check_times` and to
    whoever keeps the nonces.
    """
    signed = verify_head(message, keys)
    check_digest(message, body)
    return signed


def verify_head(message: Message, keys: SharedKeys) -> Signed:
    """Do as `verify` before there is a body: its digest is signed, and left to `check_digest`."""
    signed = parsed(message)
    for secret in range(len(keys)):
        if _is_signed_with(message, str(signed.key), keys.signing_key(signed.key, secret)):
            return Signed(signed.key, secret, signed.created, signed.expires, signed.nonce)
    raise Rejected(RejectionReason.SIGNATURE, "the signature is wrong: is the shared key the same?")


def check_digest(message: Message, body: bytes) -> None:
    """Raise `Rejected` for another body than the one whose digest the message says."""
    digest = "sha-256=:" + base64.b64encode(hashlib.sha256(body).digest()).decode() + ":"
    if not hmac.compare_digest(digest.encode(), message.headers["content-digest"].encode()):
        raise Rejected(RejectionReason.DIGEST, "the body does not have the digest that is signed")


def parsed(message: Message) -> Signed:
    """Return what the signature claims, not verified; looks at no body. Raises `Rejected`."""
    for name in ("signature-input", "signature", "content-digest"):
        if name not in message.headers:
            raise Rejected(RejectionReason.UNSIGNED, f"the header {name} is missing")
    covered = " ".join(map(_written, _covered(message)))
    start = f"{_LABEL}=({covered})"
    given = message.headers["signature-input"]
    parameters = _PARAMETERS.fullmatch(given[len(start) :]) if given.startswith(start) else None
    signature = _SIGNATURE.fullmatch(message.headers["signature"])
    key = None if parameters is None else KeyId.parse(parameters[2])
    if parameters is None or key is None or signature is None or not _is_canonical(signature[1]):
        raise Rejected(
            RejectionReason.MALFORMED, f"signatures here are of the form {start};created=…"
        )
    return Signed(key, 0, int(parameters[1]), int(parameters[3]), parameters[4])


def check_times(signed: Signed, keys: SharedKeys, now: float) -> None:
    """Raise `Rejected` unless a signature holds at a time, in seconds since 1970.

    All of it is measured by one clock, that of the cluster's database (R28).
    """
    if not 0 < signed.expires - signed.created <= LIFETIME_S:
        raise Rejected(RejectionReason.EXPIRED, f"a signature holds for {LIFETIME_S} s at most")
    if signed.created > now + MAX_SKEW_S:
        raise Rejected(
            RejectionReason.FUTURE, "the signature is from the future: compare the clocks"
        )
    if signed.expires < now - MAX_SKEW_S:
        raise Rejected(RejectionReason.EXPIRED, "the signature has expired")
    if not keys.accepts(signed.key, now):
        raise Rejected(RejectionReason.KEY, "the key's number is not of this time")


def _is_signed_with(message: Message, key_id: str, key: bytes) -> bool:
    verifier = _Verifier(
        signature_algorithm=algorithms.HMAC_SHA256, key_resolver=_resolver(key_id, key)
    )
    try:
        verifier.verify(
            _with_headers(message, dict(message.headers)),
            max_age=None,
            require_components=_covered(message),
        )
    except HTTPMessageSignaturesException:
        return False
    return True


class _Verifier(HTTPMessageVerifier):
    """Leaves the times to `check_times`: the library would ask this machine's clock."""

    def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None:
        pass


def _covered(message: Message) -> tuple[str, ...]:
    present = [n for n in ("content-type", "content-encoding") if n in message.headers]
    if isinstance(message, SignedRequest):
        return (*_TARGET, "content-digest", *present)
    of_request = [f'"{name}";req' for name in (*_TARGET, "signature")]
    return ("@status", "content-digest", *present, *of_request)


def _written(component: str) -> str:
    return component if component.startswith('"') else f'"{component}"'


def _is_canonical(encoded: str) -> bool:
    """Base64 has several spellings of some bytes; a changed character must not pass for one."""
    return base64.b64encode(base64.b64decode(encoded)).decode() == encoded


def _resolver(key_id: str, key: bytes) -> MappingKeyResolver:
    return MappingKeyResolver(public_keys={key_id: key}, private_keys={key_id: key})


def _with_headers(message: Message, headers: dict[str, str]) -> Message:
    if isinstance(message, SignedRequest):
        return SignedRequest(message.method, message.authority, message.target, headers)
    return Response(message.status_code, headers, message.request)
