"""JWT access tokens, verified with the issuer's published keys (JWKS)."""

import asyncio
import logging
from typing import Any

import jwt
from jwt import PyJWK, PyJWKClient
from jwt.exceptions import PyJWKError, PyJWTError

from packhorse.clock import Clock, SystemClock
from packhorse.errors import Transient
from packhorse.runtime.audit import RefusalLimit
from packhorse.runtime.jwt_claims import ClaimReading
from packhorse.runtime.principal import Principal

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "ES256", "EdDSA")
_LEEWAY_S = 30
_FETCH_TIMEOUT_S = 5
_KEYS_LIVE_S = 300
_REST_S = 10
"""How long the issuer is left alone after a fetch, so that made-up key ids can't drive fetches."""
_PATIENCE_S = 0.5
"""How long those whose key is known wait for newer ones; then that key will do (R33)."""


class KeysUnavailable(Transient):
    """The issuer's keys can't be fetched now, so no JWT can be checked; try again."""


class JwtVerifier:
    """Accepts JWTs of one issuer for one audience; keys are fetched in a thread and cached."""

    def __init__(
        self,
        jwks_url: str,
        *,
        issuer: str,
        audience: str,
        reading: ClaimReading | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._issuer, self._audience = issuer, audience
        self._reading = reading or ClaimReading()
        self._clock = clock or SystemClock()
        self._refusals = RefusalLimit(self._clock.monotonic)
        self._client = PyJWKClient(jwks_url, cache_jwk_set=False, timeout=_FETCH_TIMEOUT_S)
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._began_at = 0.0
        self._failure = ""
        """Why the last fetch failed; empty after one that did not."""

    def check(self) -> None:
        """Raise `KeysUnavailable` while the last fetch of the keys has failed. For any thread."""
        if self._failure:
            raise KeysUnavailable(f"the issuer's keys can't be fetched: {self._failure}")

    async def principal(self, token: str) -> Principal | None:
        """Return whose token it is. Raises `KeysUnavailable`."""
        claims = await self.claims(token)
        return None if claims is None else self._reading.principal(claims)

    async def claims(self, token: str) -> dict[str, Any] | None:
        """Return what a valid token says. Raises `KeysUnavailable`."""
        if token.count(".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header)
            return None if key is None else self._verify(token, key)
        except (PyJWTError, PyJWKError, ValueError, TypeError, OverflowError) as error:
            self._report(type(error).__name__)
            return None

    def _report(self, reason: str) -> None:
        if (left_out := self._refusals.take(reason, "")) is not None:
            reported = {"reason": reason, "left_out_before": left_out}
            logger.info("a JWT was refused", extra=reported)

    def _verify(self, token: str, key: PyJWK) -> dict[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY_S,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )

    async def _key(self, header: dict[str, Any]) -> PyJWK | None:
        kid = header.get("kid")
        if header.get("alg") not in ALGORITHMS or not isinstance(kid, str):
            return None
        known = kid in self._keys
        if not known or self._older_than(self._fetched_at, _KEYS_LIVE_S):
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(self._refresh())
                self._began_at = self._clock.monotonic()
            left_s = max(0.0, self._began_at + _PATIENCE_S - self._clock.monotonic())
            await asyncio.wait([self._refreshing], timeout=left_s if known else None)
        if self._fetched_at is None:
            raise KeysUnavailable("the issuer's keys can't be fetched; try again")
        return self._keys.get(kid)

    def _older_than(self, moment: float | None, seconds: float) -> bool:
        return moment is None or self._clock.monotonic() - moment >= seconds

    async def _refresh(self) -> None:
        """Fetch the keys unless that was tried just now; those there are stay where it fails."""
        if not self._older_than(self._tried_at, _REST_S):
            return
        self._tried_at = self._clock.monotonic()
        try:
            keys = await asyncio.to_thread(self._client.get_signing_keys)
        except (PyJWTError, OSError, ValueError) as error:
            self._failure = str(error)
            logger.warning("the issuer's keys can't be fetched", extra={"error": self._failure})
            return
        self._keys = {key.key_id: key for key in keys if key.key_id is not None}
        self._fetched_at, self._failure = self._clock.monotonic(), ""
