"""Claims of JWTs that are mapped to names and scopes by configuration."""

import asyncio
from typing import Any

import pytest

from packhorse.runtime import jwt_tokens
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.runtime.jwt_claims import ClaimReading
from packhorse.runtime.problems import Problem
from tests.unit.runtime.issuer import AUDIENCE, NAME, running_issuer


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"who": "anna", "groups": ["ops", "x"]}, ("anna", {"queues:read", "queues:clear"})),
        ({"who": "anna", "groups": "ops web"}, ("anna", {"queues:read", "queues:clear"})),
        ({"who": "anna", "groups": ["admin", "queues:read"]}, ("anna", set())),
        ({"who": "anna", "groups": {"ops": True}, "scope": "admin"}, ("anna", set())),
        ({"who": "", "groups": ["ops"]}, None),
        ({"sub": "anna", "groups": ["ops"]}, None),
        ({"who": ["anna"]}, None),
        ({"who": "a" * 200}, ("a" * 200, set())),
        ({"who": "a" * 201}, None),
    ],
)
def test_words_of_a_claim_allow_what_is_configured(claims: Any, expected: Any) -> None:
    granted = {"ops": {"queues:read", "queues:clear"}}
    found = ClaimReading("who", "groups", granted).principal(claims)
    assert (found and (found.name, found.scopes)) == expected


@pytest.mark.parametrize(
    "claims", [{"a.b": ["web"]}, {"a": {"b": ["web"]}}, {"a": {"b": "web"}, "a.b": ["web"]}]
)
def test_a_claim_is_named_as_it_is_or_by_its_path(claims: Any) -> None:
    found = ClaimReading(scopes="a.b", granted={"web": {"distribute"}}).principal(
        {"sub": "anna", **claims}
    )
    assert found is not None
    assert found.scopes == {"distribute"}


@pytest.mark.parametrize(
    ("named", "claims", "expected"),
    [
        ("scope", {"scp": "queues:read distribute"}, {"queues:read", "distribute"}),
        ("scope", {"scp": ["queues:read", {}]}, {"queues:read"}),
        ("scope", {"scope": "distribute", "scp": "admin"}, {"distribute"}),
        ("groups", {"scp": "admin"}, set()),
    ],
)
def test_an_issuer_may_call_the_scopes_scp(named: str, claims: Any, expected: Any) -> None:
    found = ClaimReading(scopes=named).principal({"sub": "anna", **claims})
    assert found is not None
    assert found.scopes == expected


def test_a_path_that_ends_at_a_word_leads_nowhere() -> None:
    found = ClaimReading(scopes="realm_access.roles").principal(
        {"sub": "anna", "realm_access": "admin"}
    )
    assert found is not None
    assert found.scopes == set()


def test_tokens_are_read_as_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_tokens, "_FETCH_TIMEOUT_S", 120)
    with running_issuer() as issuer:
        configuration = ProcessConfiguration(
            port=0,
            jwks_url=issuer.url,
            jwt_issuer=NAME,
            jwt_audience=AUDIENCE,
            jwt_name_claim="who",
            jwt_scopes_claim="groups",
            jwt_scopes={"ops": frozenset({"queues:read"})},
        )
        authenticator = authenticator_for(configuration)
        token = issuer.token(who="anna", groups=["ops"])
        found = asyncio.run(authenticator.principal(token))
        assert (found.name, found.scopes) == ("anna", frozenset({"queues:read"}))
        for wrong in (issuer.token(who="a", aud="b"), issuer.token(who="a", iss="b")):
            with pytest.raises(Problem, match="another audience"):
                asyncio.run(authenticator.principal(wrong))
