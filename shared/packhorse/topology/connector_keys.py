"""The keys of connectors, all derived from the shared key (HKDF, RFC 5869)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_TTL_S = 4 * 3600
MIN_SECRET_BYTES = 32
MAX_SKEW_S = 30.0
"""How far the clocks of two clusters' databases may be apart."""

_KEY_ID = re.compile(r"(0|[1-9][0-9]{0,11}):([A-Za-z0-9][A-Za-z0-9._-]{0,99})")


@dataclass(frozen=True, slots=True)
class KeyId:
    """Which derived key: its number, which grows with time, and the instance that uses it."""

    number: int
    instance: str

    def __str__(self) -> str:
        return f"{self.number}:{self.instance}"

    @classmethod
    def parse(cls, text: str) -> "KeyId | None":
        """Return what a peer has named, or None for what no peer names."""
        found = _KEY_ID.fullmatch(text)
        return None if found is None else cls(int(found[1]), found[2])


class SharedKeys:
    """What all clusters of one topology have in common: the shared key and its time to live.

    The first of `secrets` signs; the others are accepted too, while one replaces the other.
    Raises `ValueError` for a secret of fewer than 32 bytes.
    """

    def __init__(self, secrets: Sequence[str], ttl_s: float = KEY_TTL_S) -> None:
        self._secrets = tuple(secret.encode() for secret in secrets)
        self._ttl_s = ttl_s
        if not self._secrets or min(map(len, self._secrets)) < MIN_SECRET_BYTES:
            raise ValueError(f"a shared key has at least {MIN_SECRET_BYTES} bytes")

    def __len__(self) -> int:
        return len(self._secrets)

    def key_id(self, now: float, instance: str) -> KeyId:
        """Return the id of the key to use at a time, in seconds since 1970."""
        return KeyId(self._number(now), instance)

    def accepts(self, key: KeyId, now: float) -> bool:
        """Return whether a key holds: for two times to live from its beginning."""
        return self._number(now) - 1 <= key.number <= self._number(now + MAX_SKEW_S)

    def signing_key(self, key: KeyId, secret: int = 0) -> bytes:
        """Return the key that signs, derived from the secret of that position."""
        return _derived(self._secrets[secret], f"packhorse topology 1 sign {key}")

    def sealing_key(self, key: KeyId, secret: int = 0) -> bytes:
        """Return the key that encrypts; it shows nothing about the one that signs."""
        return _derived(self._secrets[secret], f"packhorse topology 1 seal {key}")

    def _number(self, now: float) -> int:
        return int(now // self._ttl_s)


@lru_cache(maxsize=256)
def _derived(secret: bytes, purpose: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode()).derive(secret)
