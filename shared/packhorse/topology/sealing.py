"""Encryption of what connectors exchange: AES-256-GCM, bound to where the message belongs."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from packhorse.topology.rejection import Rejected, RejectionReason

MEDIA_TYPE = "application/vnd.packhorse.sealed"
_NONCE_BYTES = 12
_TAG_BYTES = 16


def seal(key: bytes, plain: bytes, place: bytes) -> bytes:
    """Return nonce, ciphertext and tag; only who names the same `place` can read them.

    The nonce is random: a key lives for hours and seals some messages a second at most, far below
    the 2^32 that random nonces of 96 bits allow (NIST SP 800-38D, 8.3).
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, place)


def unseal(key: bytes, sealed: bytes, place: bytes) -> bytes:
    """Return what was sealed. Raises `Rejected`."""
    try:
        if len(sealed) < _NONCE_BYTES + _TAG_BYTES:
            raise InvalidTag
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
    except InvalidTag:
        raise Rejected(RejectionReason.SEAL, "the body can't be decrypted") from None


def place_of(*parts: str) -> bytes:
    """Return what a sealed body is bound to; no two lists of parts give the same."""
    return "".join(f"{len(part.encode())}:{part}," for part in parts).encode()
