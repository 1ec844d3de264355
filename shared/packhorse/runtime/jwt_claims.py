"""What an issuer's claims say of a caller: the name, the scopes, the roots and the agents."""

import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from packhorse.runtime.principal import Principal, is_root

logger = logging.getLogger(__name__)

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ClaimReading:
    """Which claims say what. With `granted`, the words of `scopes` are looked up there.

    A claim is named as it is, or by its path with dots (`realm_access.roles`).
    """

    name: str = "sub"
    scopes: str = "scope"
    granted: Mapping[str, Set[str]] = field(default_factory=dict)

    def principal(self, claims: Mapping[str, Any]) -> Principal | None:
        """Return who the claims are about; None where they have no name."""
        name = _claim(claims, self.name)
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            logger.info("a JWT has no name of up to %d characters", _LONGEST_NAME)
            return None
        return Principal(name, self._scopes(claims), _roots(claims), _agents(claims))

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        claim = _claim(claims, self.scopes)
        if claim is None and self.scopes == "scope":
            claim = claims.get("scp", "")
        words = claim.split() if isinstance(claim, str) else claim
        if not isinstance(words, list):
            return frozenset()
        named = [word for word in words if isinstance(word, str)]
        if not self.granted:
            return frozenset(named)
        return frozenset().union(*(self.granted.get(word, ()) for word in named))


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _roots(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the roots that the claim names; what is no path opens nothing."""
    roots = claims.get("roots", ["/"])
    if not isinstance(roots, list):
        return ()
    named = tuple(root for root in roots if isinstance(root, str) and is_root(root))
    if len(named) < len(roots):
        logger.info("a JWT names roots that are no paths", extra={"count": len(roots) - len(named)})
    return named


def _agents(claims: Mapping[str, Any]) -> tuple[str, ...] | None:
    agents = claims.get("agents")
    if agents is None:
        return None
    if not isinstance(agents, list):
        return ()
    return tuple(agent for agent in agents if isinstance(agent, str))
