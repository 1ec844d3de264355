"""What a queue is doing, and what may be unknown of it."""

import enum

from packhorse.wire.messages import SubscriptionState


class QueueState(enum.Enum):
    """What a queue is doing (R16); those behind STALE are what its subscriber says of itself.

    RETRYING is RUNNING with a first package that has failed, and is tried again.
    """

    IDLE = "IDLE"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    BLOCKED = "BLOCKED"
    STALE = "STALE"
    GAP = "GAP"
    JOURNAL_MISMATCH = "JOURNAL_MISMATCH"
    WAITING_FOR_LEASE = "WAITING_FOR_LEASE"
    WAITING_FOR_JOURNAL = "WAITING_FOR_JOURNAL"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    WAITING_FOR_SUBSCRIBER = "WAITING_FOR_SUBSCRIBER"
    LOADING = "LOADING"


class LengthUnknown(enum.Enum):
    """Why the length of a queue is known within bounds only."""

    AWAY = "AWAY"
    """The subscriber is away, so nothing was read for it; ask for its queue by name."""
    LOADING = "LOADING"
    """Its packages are being read from the journal."""
    TOO_LONG = "TOO_LONG"
    """They are more than the cache may hold."""


OWN_STATES = frozenset(SubscriptionState) - {
    SubscriptionState.RUNNING,
    SubscriptionState.IDLE,
    SubscriptionState.BLOCKED,
}
"""What a subscriber says of itself that a queue shows as it is."""
