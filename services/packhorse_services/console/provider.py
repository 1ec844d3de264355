"""Signing in at an identity provider: OpenID Connect, authorization code with PKCE.

The console gains no right by it: what comes back is the visitor's own access token, which every
service verifies by itself. See docs/adr/0105-identity-provider.md.
"""

import asyncio
import json
import logging
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from cryptography.fernet import Fernet, InvalidToken
from oauthlib.oauth2 import OAuth2Error, WebApplicationClient, is_secure_transport

from packhorse.errors import Permanent, Transient
from packhorse.runtime.jwt_tokens import JwtVerifier
from packhorse_services.console.settings import PREFIX, Settings

logger = logging.getLogger(__name__)

PROVIDER_PAGE, PROVIDER_DONE = "sign-in/provider", "sign-in/provider/done"
"""Pages that lead to the identity provider, and back."""

_GOOD_S = 600
"""How long somebody may take at the identity provider."""
_TIMEOUT_S = 10.0
_RENEWED_AFTER = 0.8
"""Of an access token's life."""
_REST_S = 10.0
"""How long the provider is left alone that did not answer: a page asks every 2 s."""
_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


class NotSignedIn(Permanent):
    """The identity provider signs nobody in, or what came back is not what was asked for."""


class ProviderAway(Transient):
    """The identity provider does not answer; try again."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the console has to know again when the visitor comes back."""

    state: str
    nonce: str
    verifier: str
    wanted: str


@dataclass(frozen=True, slots=True)
class _Tokens:
    """`refresh` is empty where `access` can't be renewed; the times are of a steady clock."""

    access: str
    refresh: str = ""
    due_at: float = 0.0
    ends_at: float = 0.0


class RenewedToken:
    """A visitor's access token, renewed before it ends for as long as the provider lets it."""

    def __init__(self, provider: "IdentityProvider", tokens: _Tokens, identity: str = "") -> None:
        self._provider, self._tokens, self._identity = provider, tokens, identity
        self._renewal: asyncio.Task[None] | None = None

    async def current(self) -> str:
        """Return the token; empty once the provider refuses another one. Raises nothing.

        No page waits for the provider while the token that there is still lives.
        """
        now, tokens = time.monotonic(), self._tokens
        if tokens.refresh and now >= tokens.due_at:
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.create_task(self._renew())
            if now >= tokens.ends_at:
                await asyncio.shield(self._renewal)
        return self._tokens.access

    async def way_out(self) -> str:
        """Return where the provider ends its session; empty when it has no such page, or is away.

        Raises nothing.
        """
        return await self._provider.way_out(self._identity)

    async def _renew(self) -> None:
        try:
            self._tokens = await self._provider.renewed(self._tokens)
        except NotSignedIn:
            self._tokens = _Tokens("")
        except ProviderAway as error:
            logger.warning("a token can't be renewed now", extra={"error": str(error)})
            self._tokens = replace(self._tokens, due_at=time.monotonic() + _REST_S)


class IdentityProvider:
    """One provider. What is under way is in the visitor's browser, sealed with a key of ours."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._issuer, self._client_id = settings.jwt_issuer or "", settings.oidc_client_id
        self._pages = f"{settings.console_url.rstrip('/')}{PREFIX}"
        self._id_tokens = JwtVerifier(
            settings.jwks_url or "", issuer=self._issuer, audience=self._client_id
        )
        self._seal = Fernet(Fernet.generate_key())
        self._http = httpx.AsyncClient(timeout=_TIMEOUT_S)
        self._known: Mapping[str, Any] = {}
        self._discovering = asyncio.Lock()
        self._away_until, self._away_because = 0.0, ""

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def begin(self, wanted: str) -> tuple[str, str]:
        """Return where to send the browser, and what it has to bring back. Raises `ProviderAway`.

        `wanted` is the page to go on to.
        """
        client, nonces = WebApplicationClient(self._client_id), secrets.token_urlsafe
        begun = _Begun(nonces(32), nonces(32), client.create_code_verifier(64), wanted)
        try:
            url = client.prepare_request_uri(
                await self._endpoint("authorization_endpoint"),
                redirect_uri=f"{self._pages}/{PROVIDER_DONE}",
                scope=self._settings.oidc_scopes,
                state=begun.state,
                code_challenge=client.create_code_challenge(begun.verifier, "S256"),
                code_challenge_method="S256",
                nonce=begun.nonce,
                **self._settings.oidc_parameters,
            )
        except OAuth2Error as error:  # such as a provider without TLS
            raise ProviderAway(f"the identity provider can't be used: {error}") from None
        return str(url), self._seal.encrypt(json.dumps(asdict(begun)).encode()).decode()

    async def finish(
        self, sealed: str, *, state: str, code: str, issuer: str, error: str
    ) -> tuple[RenewedToken, str]:
        """Return the access token of who comes back with these, and the page that was wanted.

        Raises `NotSignedIn`, `ProviderAway`, `KeysUnavailable`.
        """
        begun = self._opened(sealed)
        if not secrets.compare_digest(begun.state.encode(), state.encode()):
            raise NotSignedIn("this browser did not begin to sign in, or began again; try again")
        if issuer not in ("", self._issuer):
            raise NotSignedIn("another identity provider has answered than was asked")
        if error or not code:
            raise NotSignedIn(f"the identity provider refuses: {error or 'no code'}")
        tokens = await self._exchanged(code, begun.verifier)
        identity = str(tokens.get("id_token", ""))
        claims = await self._id_tokens.claims(identity)
        nonce = str((claims or {}).get("nonce", ""))
        if not secrets.compare_digest(nonce.encode("utf-8", "replace"), begun.nonce.encode()):
            raise NotSignedIn("the identity provider's answer is not for this sign-in; try again")
        return RenewedToken(self, _tokens_of(tokens), identity), begun.wanted

    async def way_out(self, identity: str) -> str:
        """Return where a browser ends the session of an ID token's account; empty for nowhere."""
        try:
            url = await self._endpoint("end_session_endpoint")
        except ProviderAway:
            return ""
        asked = {
            "id_token_hint": identity,
            "client_id": self._client_id,
            "post_logout_redirect_uri": f"{self._pages}/sign-in",
        }
        return f"{url}{'&' if '?' in url else '?'}{urlencode(asked)}"

    def _opened(self, sealed: str) -> _Begun:
        try:
            return _Begun(**json.loads(self._seal.decrypt(sealed.encode(), ttl=_GOOD_S)))
        except InvalidToken:
            raise NotSignedIn(
                "this took too long, or began in another browser; try again"
            ) from None

    async def renewed(self, tokens: _Tokens) -> _Tokens:
        """Return the tokens that follow. Raises `NotSignedIn`, `ProviderAway`."""
        client = WebApplicationClient(self._client_id)
        more: dict[str, Any] = dict(self._settings.oidc_parameters)
        body = client.prepare_refresh_body(refresh_token=tokens.refresh, **more)
        return _tokens_of({"refresh_token": tokens.refresh, **await self._given(client, body)})

    async def _exchanged(self, code: str, verifier: str) -> Mapping[str, Any]:
        client = WebApplicationClient(self._client_id)
        more: dict[str, Any] = dict(self._settings.oidc_parameters)
        body = client.prepare_request_body(
            code, f"{self._pages}/{PROVIDER_DONE}", code_verifier=verifier, **more
        )
        return await self._given(client, body)

    async def _given(self, client: WebApplicationClient, body: str) -> Mapping[str, Any]:
        url = await self._endpoint("token_endpoint")
        secret = self._settings.oidc_client_secret.get_secret_value()
        names = (quote(self._client_id, safe=""), quote(secret, safe="")) if secret else None
        answer = await self._sent("POST", url, content=body, headers=_FORM, auth=names)
        try:
            tokens: Mapping[str, Any] = client.parse_request_body_response(answer.text)
        except (OAuth2Error, ValueError) as error:
            raise NotSignedIn(f"the identity provider gives no token: {error}") from None
        return tokens

    async def _endpoint(self, name: str) -> str:
        """Return an address of the provider, which says once what they are. Raises `ProviderAway`.

        While it is away one asks, and then nobody for a while.
        """
        async with self._discovering:
            if not self._known:
                self._known = await self._discovered()
        if name not in self._known:
            raise ProviderAway(f"the identity provider has no {name}")
        url = str(self._known[name])
        if not is_secure_transport(url):
            raise ProviderAway(f"the identity provider can't be used: {name} is without TLS")
        return url

    async def _discovered(self) -> Mapping[str, Any]:
        if time.monotonic() < self._away_until:
            raise ProviderAway(self._away_because)
        issuer = self._issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            found = (await self._sent("GET", url)).json()
        except ProviderAway as error:
            self._away_until, self._away_because = time.monotonic() + _REST_S, str(error)
            raise
        except ValueError:
            raise ProviderAway(f"{url} does not say what the identity provider is") from None
        if not isinstance(found, dict) or found.get("issuer") != issuer:
            raise ProviderAway(f"{url} is not of the issuer {issuer}")
        return found

    async def _sent(self, method: str, url: str, **more: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, url, **more)
        except httpx.HTTPError as error:
            kind = type(error).__name__
            raise ProviderAway(f"the identity provider does not answer ({kind})") from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise ProviderAway(f"the identity provider answers {answer.status_code}")
        return answer


def _tokens_of(given: Mapping[str, Any]) -> _Tokens:
    """Return the tokens of an answer. Raises `NotSignedIn` for a life that is no number."""
    try:
        lives_s = float(given.get("expires_in") or math.inf)
    except (TypeError, ValueError):
        raise NotSignedIn("the identity provider does not say how long its token lives") from None
    now = time.monotonic()
    access, refresh = str(given["access_token"]), str(given.get("refresh_token", ""))
    return _Tokens(access, refresh, now + lives_s * _RENEWED_AFTER, now + lives_s)
