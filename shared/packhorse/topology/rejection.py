"""Why a message between connectors is not believed."""

import enum

from packhorse.errors import Permanent


class RejectionReason(enum.StrEnum):
    """The label of the counter of rejected messages."""

    UNTRUSTED = "untrusted"
    """The peer's address is not on the allow list."""
    UNSIGNED = "unsigned"
    """A header that makes a signature is missing."""
    MALFORMED = "malformed"
    """A signature's header is there twice, or is not in the one form that is taken."""
    DIGEST = "digest"
    """The body is another one than was signed."""
    SIGNATURE = "signature"
    EXPIRED = "expired"
    FUTURE = "future"
    KEY = "key"
    """The key's number is older than two times to live, or not due yet."""
    REPLAY = "replay"
    """The nonce has been used before."""
    FOREIGN = "foreign"
    """The instance that signs is not the one that the URL or the announcement names."""
    SEAL = "seal"
    """The body can't be decrypted, or is encrypted on one side only."""
    ANNOUNCEMENT = "announcement"
    """It is signed by a peer and yet says what no honest peer says."""


class Rejected(Permanent):
    """A message that is not believed; the text is safe to show to whoever sent it."""

    def __init__(self, reason: RejectionReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
