"""Signed requests between connectors, and everything that can be wrong with one."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace

from packhorse.topology.connector_keys import KeyId, SharedKeys
from packhorse.topology.rejection import RejectionReason
from packhorse.topology.signing import SignedRequest, check_times, fields, sign, verify

KEYS = SharedKeys(["the shared key, which has 32 bytes"])
OTHER_KEYS = SharedKeys(["another key, which has 32 bytes too"])
INPUT, SIGNATURE, DIGEST = "signature-input", "signature", "content-digest"


@dataclass(frozen=True)
class Sent:
    """What arrives: everything that somebody on the way can change."""

    method: str
    authority: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def believed(self, now: float, keys: SharedKeys = KEYS) -> None:
        """Raise `Rejected` unless the signature is right, and of that time."""
        request = SignedRequest(self.method, self.authority, self.target, fields(self.headers))
        check_times(verify(request, self.body, keys), keys, now)

    def with_header(self, name: str, change: Callable[[str], str]) -> "Sent":
        changed = tuple((n, change(v) if n == name else v) for n, v in self.headers)
        assert changed != self.headers
        return replace(self, headers=changed)

    def without(self, name: str) -> "Sent":
        return replace(self, headers=tuple(pair for pair in self.headers if pair[0] != name))

    def with_another(self, name: str, value: str) -> "Sent":
        return replace(self, headers=(*self.headers, (name, value)))


Case = tuple[str, Sent, RejectionReason]


def sent(
    request: SignedRequest,
    body: bytes,
    now: float,
    keys: SharedKeys = KEYS,
    key: KeyId | None = None,
) -> Sent:
    """A request as its sender signs it, with the instance of its URL."""
    instance = request.target.rpartition("/")[2]
    headers = sign(request, body, keys, key or keys.key_id(now, instance), now)
    return Sent(request.method, request.authority, request.target, tuple(headers.items()), body)


def forgeries(valid: Sent) -> list[Case]:
    """Name, forged request, and why it is to be rejected."""
    return [*_of_the_message(valid), *_of_the_headers(valid), *_of_the_parameters(valid)]


def _of_the_message(valid: Sent) -> list[Case]:
    wrong = RejectionReason.SIGNATURE
    return [
        ("path", replace(valid, target=valid.target + "x"), wrong),
        ("path's case", replace(valid, target=valid.target.replace("topology", "Topology")), wrong),
        ("query", replace(valid, target=valid.target + "?a=b"), wrong),
        ("host", replace(valid, authority="other.example"), wrong),
        ("port", replace(valid, authority=valid.authority.partition(":")[0] + ":1"), wrong),
        ("body", replace(valid, body=valid.body + b" "), RejectionReason.DIGEST),
        ("empty body", replace(valid, body=b""), RejectionReason.DIGEST),
        ("media type", valid.with_header("content-type", lambda _: "text/plain"), wrong),
        ("no media type", valid.without("content-type"), RejectionReason.MALFORMED),
        ("a coding", valid.with_another("content-encoding", "gzip"), RejectionReason.MALFORMED),
    ]


def _of_the_headers(valid: Sent) -> list[Case]:
    headers = dict(valid.headers)
    cases: list[Case] = []
    for name in (INPUT, SIGNATURE, DIGEST):
        again = valid.with_another(name.title(), headers[name])
        listed = valid.with_header(name, lambda value: f"{value}, {value}")
        listed_is = RejectionReason.SIGNATURE if name == DIGEST else RejectionReason.MALFORMED
        cases += [
            (f"no {name}", valid.without(name), RejectionReason.UNSIGNED),
            (f"{name} twice", again, RejectionReason.MALFORMED),
            (f"{name} as a list", listed, listed_is),
        ]
    second = valid.with_header(INPUT, lambda v: v + ", " + v.replace("packhorse", "b"))
    both = second.with_header(SIGNATURE, lambda v: v + ", " + v.replace("packhorse", "b"))
    longer = base64.b64encode(b"\0" * 33).decode()
    long = valid.with_header(SIGNATURE, lambda _: f"packhorse=:{longer}:")
    spelt = valid.with_header(SIGNATURE, lambda v: v[:-3] + chr(ord(v[-3]) + 1) + v[-2:])
    empty = valid.with_header(SIGNATURE, lambda _: "packhorse=::")
    sha_512 = valid.with_header(DIGEST, lambda v: v.replace("256", "512"))
    return [
        *cases,
        ("two signatures", both, RejectionReason.MALFORMED),
        ("a longer signature", long, RejectionReason.MALFORMED),
        ("the signature spelt otherwise", spelt, RejectionReason.MALFORMED),
        ("an empty signature", empty, RejectionReason.MALFORMED),
        ("another digest", sha_512, RejectionReason.SIGNATURE),
    ]


def _of_the_parameters(valid: Sent) -> list[Case]:
    given = dict(valid.headers)[INPUT]
    key_id, expires = _value(given, "keyid"), _value(given, "expires")
    number, _, instance = key_id.strip('"').partition(":")

    def changed(old: str, new: str) -> Sent:
        return valid.with_header(INPUT, lambda value: value.replace(old, new))

    wrong, malformed = RejectionReason.SIGNATURE, RejectionReason.MALFORMED
    return [
        ("another key number", changed(key_id, f'"{int(number) - 1}:{instance}"'), wrong),
        ("an endless key number", changed(key_id, f'"{"9" * 40}:{instance}"'), malformed),
        ("a key number with a sign", changed(key_id, f'"-{number}:{instance}"'), malformed),
        ("later expiry", changed(f"expires={expires}", f"expires={int(expires) + 9}"), wrong),
        ("another label", changed("packhorse=", "other="), malformed),
        ("less covered", changed('"@method" ', ""), malformed),
        ("another algorithm", changed("hmac-sha256", "ed25519"), malformed),
        *(
            (f"no {name}", changed(f";{name}={_value(given, name)}", ""), malformed)
            for name in ("created", "expires", "nonce", "keyid", "alg")
        ),
    ]


def _value(given: str, parameter: str) -> str:
    return given.partition(f";{parameter}=")[2].partition(";")[0]
