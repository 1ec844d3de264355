"""JWT: only what the issuer signed, for us, now, with an algorithm we allow."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from packhorse.runtime import jwt_tokens
from packhorse.runtime.auth import Authenticator, Principal
from packhorse.runtime.jwt_tokens import JwtVerifier
from tests.harness.clock import ManualClock
from tests.unit.runtime.apps import call, sample_app
from tests.unit.runtime.issuer import AUDIENCE, NAME, Issuer, running_issuer


@pytest.fixture(scope="module")
def shared_issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The issuer's thread may be late; where no keys are to be had, it says so."""
    monkeypatch.setattr(jwt_tokens, "_FETCH_TIMEOUT_S", 120)


@pytest.fixture
def issuer(shared_issuer: Issuer) -> Issuer:
    shared_issuer.broken, shared_issuer.fetches = False, 0
    shared_issuer.published = {"rsa", "ec", "ed"}
    shared_issuer.answers.set()
    return shared_issuer


def _verifier(issuer: Issuer, clock: ManualClock | None = None) -> JwtVerifier:
    return JwtVerifier(issuer.url, issuer=NAME, audience=AUDIENCE, clock=clock or ManualClock())


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _status(issuer: Issuer, token: str) -> int:
    app = sample_app(Authenticator(_verifier(issuer)))
    return call(app, "GET", "/orders", headers=_bearer(token)).status_code


@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
def test_a_good_token_is_let_in(issuer: Issuer, kid: str) -> None:
    assert _status(issuer, issuer.token(kid)) == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"exp": -31.0},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": 300.0},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"sub": None},
        {"sub": 7},
    ],
)
def test_wrong_claims_are_401(issuer: Issuer, claims: dict[str, Any]) -> None:
    now = int(time.time())  # a float is so many seconds from the test's own start
    reported = {n: now + int(v) if isinstance(v, float) else v for n, v in claims.items()}
    assert _status(issuer, issuer.token(**reported)) == 401


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _alg_none(issuer: Issuer) -> str:
    _, claims, _ = issuer.token().split(".")
    return f"{_part({'alg': 'none', 'kid': 'rsa', 'typ': 'JWT'})}.{claims}."


def _alg_none_with_signature(issuer: Issuer) -> str:
    _, claims, signature = issuer.token().split(".")
    return f"{_part({'alg': 'nOnE', 'kid': 'rsa'})}.{claims}.{signature}"


def _hs_signed_with_the_public_key(issuer: Issuer) -> str:
    public = issuer.keys["rsa"][1].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _, claims, _ = issuer.token().split(".")
    signed = f"{_part({'alg': 'HS256', 'kid': 'rsa', 'typ': 'JWT'})}.{claims}"
    mac = hmac.new(pem, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def _signed_by_another(issuer: Issuer) -> str:
    return jwt.encode(
        {"iss": NAME, "aud": AUDIENCE, "sub": "x", "exp": int(time.time()) + 60},
        Issuer().keys["rsa"][1],
        algorithm="RS256",
        headers={"kid": "rsa"},
    )


def _other_kid(issuer: Issuer) -> str:
    return issuer.token("rsa", header={"kid": "ec"})


def _kid_path(issuer: Issuer) -> str:
    return issuer.token(header={"kid": "../../etc/passwd"})


def _no_kid(issuer: Issuer) -> str:
    _, claims, signature = issuer.token().split(".")
    return f"{_part({'alg': 'RS256'})}.{claims}.{signature}"


def _altered(issuer: Issuer) -> str:
    header, _, signature = issuer.token().split(".")
    claims = {"iss": NAME, "aud": AUDIENCE, "sub": "x", "exp": 2**40, "scope": "admin"}
    return f"{header}.{_part(claims)}.{signature}"


def _critical(issuer: Issuer) -> str:
    return issuer.token(header={"crit": ["unknown"], "unknown": 1})


@pytest.mark.parametrize(
    "forge",
    [
        _alg_none,
        _alg_none_with_signature,
        _hs_signed_with_the_public_key,
        _signed_by_another,
        _other_kid,
        _kid_path,
        _no_kid,
        _altered,
        _critical,
        lambda issuer: "a.b.c",
        lambda issuer: "..",
        lambda issuer: issuer.token() + "x",
        lambda issuer: issuer.token()[:-2],
        lambda issuer: f"{_part([])}.{_part([])}.",
        lambda issuer: f"{_part({'alg': ['RS256'], 'kid': 'rsa'})}.{_part({})}.AA",
        lambda issuer: issuer.token() + "A" * 9000,
    ],
)
def test_forged_tokens_are_401(issuer: Issuer, forge: Callable[[Issuer], str]) -> None:
    app = sample_app(Authenticator(_verifier(issuer)))
    answer = call(app, "GET", "/orders", headers=_bearer(forge(issuer)))
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        ("queues:read", 200),
        ("openid queues:read", 200),
        (["queues:read"], 200),
        ("admin", 200),
        ("distribute", 403),
        ("QUEUES:READ", 403),
        ("queues:readx", 403),
        ("", 403),
        (None, 403),
        ([7, None, {}], 403),
        ({"queues:read": True}, 403),
    ],
)
def test_the_scope_claim_decides(issuer: Issuer, scope: Any, status: int) -> None:
    assert _status(issuer, issuer.token(scope=scope)) == status


@pytest.mark.parametrize(
    ("roots", "expected"),
    [
        (None, ["/"]),
        (["/a", "/b"], ["/a", "/b"]),
        ([], []),
        ("/a", []),
        ([7, "/a"], ["/a"]),
        (["", "a", "a/b", "/a/", "//", "/a/../b", " /"], []),
    ],
)
def test_the_roots_claim_narrows_where_the_caller_may_act(
    issuer: Issuer, roots: Any, expected: list[str]
) -> None:
    app = sample_app(Authenticator(_verifier(issuer)))
    token = issuer.token(roots=roots)
    assert call(app, "GET", "/orders", headers=_bearer(token)).json() == expected


@pytest.mark.parametrize(
    ("agents", "status"),
    [
        (None, 200),
        (["main"], 200),
        (["bulk", "main"], 200),
        (["bulk"], 403),
        ([], 403),
        ("main", 403),
        (7, 403),
    ],
)
def test_the_agents_claim_decides_for_which_agents_the_token_is_good(
    issuer: Issuer, agents: Any, status: int
) -> None:
    app = sample_app(Authenticator(_verifier(issuer)), agent="main")
    token = issuer.token(agents=agents)
    assert call(app, "GET", "/orders", headers=_bearer(token)).status_code == status


def _principal(verifier: JwtVerifier, token: str) -> Principal | None:
    return asyncio.run(verifier.principal(token))


def test_keys_are_fetched_once_for_many_tokens(issuer: Issuer) -> None:
    async def many(verifier: JwtVerifier) -> list[Principal | None]:
        tokens = [issuer.token(kid) for kid in ("rsa", "ec", "ed") * 10]
        return list(await asyncio.gather(*(verifier.principal(token) for token in tokens)))

    verifier = _verifier(issuer, clock := ManualClock())
    for passed_s, fetches in ((0, 1), (299, 1), (1, 2)):
        clock.advance(passed_s)
        assert all(asyncio.run(many(verifier)))
        assert issuer.fetches == fetches


def test_made_up_key_ids_do_not_drive_fetches(issuer: Issuer) -> None:
    verifier = _verifier(issuer)
    for number in range(50):
        assert _principal(verifier, issuer.token(header={"kid": f"k{number}"})) is None
    assert issuer.fetches == 1


def test_a_new_key_is_found_and_a_withdrawn_one_is_forgotten(issuer: Issuer) -> None:
    verifier = _verifier(issuer, clock := ManualClock())
    issuer.published = {"rsa"}
    assert _principal(verifier, issuer.token("ec")) is None
    issuer.published = {"ec"}
    clock.advance(11)
    assert _principal(verifier, issuer.token("ec")) is not None
    assert _principal(verifier, issuer.token("rsa")) is None


def test_an_issuer_that_is_away_is_503_until_it_is_back(issuer: Issuer) -> None:
    app = sample_app(Authenticator(_verifier(issuer, clock := ManualClock())))
    issuer.broken = True
    for _ in range(3):
        answer = call(app, "GET", "/orders", headers=_bearer(issuer.token()))
        assert answer.status_code == 503
    assert issuer.fetches == 1
    issuer.broken = False
    clock.advance(11)
    assert call(app, "GET", "/orders", headers=_bearer(issuer.token())).status_code == 200


@pytest.mark.parametrize("broken", [True, False])
def test_known_keys_are_used_while_the_issuer_is_away_or_has_none(
    issuer: Issuer, broken: bool
) -> None:
    verifier = _verifier(issuer, clock := ManualClock())
    assert _principal(verifier, issuer.token()) is not None
    issuer.broken, issuer.published = broken, set()
    clock.advance(301)
    assert _principal(verifier, issuer.token()) is not None


def test_r33_known_keys_are_used_until_an_issuer_that_hangs_answers(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told(verifier: JwtVerifier, clock: ManualClock) -> None:
        assert await verifier.principal(issuer.token("rsa"))
        issuer.published = {"ec"}
        issuer.answers.clear()
        for patience_s, passed_s in ((0.01, 301), (600, 600)):  # it is over for all who wait
            monkeypatch.setattr(jwt_tokens, "_PATIENCE_S", patience_s)
            clock.advance(passed_s)
            assert await asyncio.wait_for(verifier.principal(issuer.token("rsa")), 60)
        issuer.answers.set()
        while await verifier.principal(issuer.token("rsa")):
            clock.advance(11)  # it is asked again
        assert await verifier.principal(issuer.token("ec"))

    asyncio.run(told(_verifier(issuer, clock := ManualClock()), clock))
