"""Who calls, and what the caller may do: bearer tokens from a file, or JWT through JWKS."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Protocol

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from packhorse.runtime import audit, places
from packhorse.runtime.configuration import InvalidConfiguration, ProcessConfiguration
from packhorse.runtime.guards import checked_first
from packhorse.runtime.jwt_claims import ClaimReading
from packhorse.runtime.jwt_tokens import JwtVerifier
from packhorse.runtime.principal import ANYBODY, CALLER, Principal, TokenScope
from packhorse.runtime.problems import Problem
from packhorse.runtime.token_file import TokenFile, ensure_token_file
from packhorse.runtime.validation import refuse_unknown_query

__all__ = [
    "Authenticator",
    "Principal",
    "TokenScope",
    "authenticator_for",
    "ensure_token_file",
    "require",
]

_MAX_TOKEN_LENGTH = 8192
_ADMITTED = "packhorse.admitted"


class Tokens(Protocol):
    """One way to know a caller by a token."""

    async def principal(self, token: str) -> Principal | None:
        """Return whose token it is, or None when it is not a valid one."""
        ...


class Authenticator:
    """Knows callers by their bearer token, in any of several ways."""

    def __init__(self, *ways: Tokens) -> None:
        if not ways:
            raise ValueError("an authenticator needs a way; use Authenticator.off() for none")
        self._ways: tuple[Tokens, ...] | None = ways

    @classmethod
    def off(cls) -> "Authenticator":
        """Return one that takes everybody for `ANYBODY`."""
        authenticator = cls.__new__(cls)
        authenticator._ways = None
        return authenticator

    @property
    def is_off(self) -> bool:
        """Whether everybody may do everything."""
        return self._ways is None

    def check(self) -> None:
        """Raise why tokens that are good may be refused now. For any thread."""
        for way in self._ways or ():
            if isinstance(way, TokenFile):
                way.current()
            elif isinstance(way, JwtVerifier):
                way.check()

    async def principal(self, token: str | None) -> Principal:
        """Return the caller. Raises `Problem` 401 for no token or an invalid one."""
        if self._ways is None:
            return ANYBODY
        if not token:
            raise _unauthenticated("send the header Authorization: Bearer <token>")
        if len(token) <= _MAX_TOKEN_LENGTH:
            for way in self._ways:
                found = await way.principal(token)
                if found is not None:
                    return found
        raise _unauthenticated(
            "the token is unknown, expired or for another audience", "invalid_token"
        )


def authenticator_for(configuration: ProcessConfiguration) -> Authenticator:
    """Return what the configuration asks for; a token file that is missing is created.

    The new token is shown once, on standard error. Raises `InvalidConfiguration`.
    """
    if not configuration.authentication:
        return Authenticator.off()
    ways: list[Tokens] = []
    if configuration.token_file is not None:
        created = ensure_token_file(configuration.token_file)
        if created is not None:
            sys.stderr.write(f"created {configuration.token_file}; its admin token is {created}\n")
        ways.append(TokenFile(configuration.token_file))
    if configuration.jwks_url:
        ways.append(_jwt_verifier(configuration, configuration.jwks_url))
    if not ways:
        raise InvalidConfiguration(
            "authentication is on, but there is neither token_file nor jwks_url; set one "
            "(PACKHORSE_TOKEN_FILE, PACKHORSE_JWKS_URL)"
        )
    return Authenticator(*ways)


def _jwt_verifier(configuration: ProcessConfiguration, jwks_url: str) -> JwtVerifier:
    return JwtVerifier(
        jwks_url,
        issuer=configuration.jwt_issuer or "",
        audience=configuration.jwt_audience or "",
        reading=ClaimReading(
            configuration.jwt_name_claim,
            configuration.jwt_scopes_claim,
            configuration.jwt_scopes,
        ),
    )


_bearer = HTTPBearer(auto_error=False, description="An opaque token or a JWT")


def require(scope: str | None) -> Callable[..., Awaitable[Principal]]:
    """Return a dependency that gives the `Principal`, or answers 401, or 403 without `scope`.

    A caller that is let in and sends query parameters that the route does not have gets 422. The
    OpenAPI document names the scope. Where the app serves one publisher agent, a token for
    other agents gets 403 too. With None any valid token will do.
    """
    needed = TokenScope(scope) if scope is not None else None
    named = Security(_bearer, scopes=[] if needed is None else [needed.value])

    async def principal(
        request: Request, _named: Annotated[HTTPAuthorizationCredentials | None, named]
    ) -> Principal:
        admitted: dict[TokenScope | None, Principal] = request.scope.get(_ADMITTED, {})
        return admitted[needed] if needed in admitted else await check(request)

    async def check(request: Request) -> Principal:
        found = await _identified(request)
        if needed is not None:
            _check_allowed(request, found, needed)
        refuse_unknown_query(request)
        request.scope.setdefault(_ADMITTED, {})[needed] = found
        return found

    checked_first(principal, check)
    return principal


async def _identified(request: Request) -> Principal:
    credentials = await _bearer(request)
    authenticator: Authenticator = request.app.state.authenticator
    found = await authenticator.principal(credentials.credentials if credentials else None)
    now_known(request, found)
    return found


def _check_allowed(request: Request, caller: Principal, needed: TokenScope) -> None:
    if not caller.may(needed):
        raise _forbidden(needed)
    agent: str | None = request.app.state.agent
    if agent is not None and not caller.may_deal_with(agent):
        raise Problem(403, detail=f"this token is not for the publisher agent {agent}")


def bearer(request: Request) -> str:
    """Return the token that a request was let in with; empty where it has none."""
    return request.headers.get("authorization", "").partition(" ")[2].strip()


def now_known(request: Request, caller: Principal) -> None:
    """Note who calls: for the audit log, and for what the caller may take. Raises `Problem` 429."""
    request.scope[CALLER] = caller
    audit.known(request, caller)
    places.known(request.scope)


def _unauthenticated(detail: str, error: str | None = None) -> Problem:
    challenge = 'Bearer realm="packhorse"'
    if error:
        challenge += f', error="{error}"'
    return Problem(401, detail=detail, headers={"WWW-Authenticate": challenge})


def _forbidden(scope: str) -> Problem:
    challenge = f'Bearer realm="packhorse", error="insufficient_scope", scope="{scope}"'
    return Problem(
        403,
        detail=f"this needs a token with the scope {scope}",
        headers={"WWW-Authenticate": challenge},
    )
