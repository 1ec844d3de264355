"""How each state looks, how urgent it is, and what to do about it: the same on every page."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """`kind` is the colour's class, `icon` says the same without colours; a low rank is urgent."""

    kind: str
    icon: str
    rank: int
    advice: str = ""


_BAD, _WARN, _BUSY, _GOOD, _REST = (
    ("bad", "✕"),
    ("warn", "▲"),
    ("busy", "●"),
    ("good", "✓"),
    ("rest", "■"),
)

_LOOKS: Mapping[str, Look] = {
    # of queues and subscribers
    "BLOCKED": Look(
        *_BAD,
        0,
        "Mend what the reason names, then retry. A retry imports the content as it was sent: if "
        "that is wrong, mend it at the author, skip the package, and distribute its paths again.",
    ),
    "GAP": Look(
        *_BAD, 0, "The journal has forgotten what comes next: load a snapshot, or reset it."
    ),
    "JOURNAL_MISMATCH": Look(
        *_BAD, 0, "The journal is not the one it imported from: see the operations guide."
    ),
    "RETRYING": Look(*_WARN, 1, "It is tried again by itself; the reason may tell what to mend."),
    "STALE": Look(*_WARN, 2, "It is silent: does it run, and reach the journal?"),
    "WAITING_FOR_JOURNAL": Look(*_WARN, 2, "It does not reach the journal."),
    "STOPPED": Look(*_REST, 3, "An operator has stopped it; it goes on once it is resumed."),
    "PAUSED": Look(*_REST, 3, "An operator has paused it; it goes on once it is resumed."),
    "WAITING_FOR_SUBSCRIBER": Look(*_REST, 4, "It waits for the subscriber that it follows."),
    "WAITING_FOR_LEASE": Look(*_REST, 4, "Another worker imports into the same database."),
    "LOADING": Look(*_BUSY, 5),
    "RUNNING": Look(*_BUSY, 5),
    "IDLE": Look(*_GOOD, 6),
    # of distributions, and of one at a subscriber
    "ACCEPTED": Look(*_BUSY, 5),
    "QUEUED": Look(*_BUSY, 5),
    "DISTRIBUTED": Look(*_GOOD, 6),
    "PARTLY_DISTRIBUTED": Look(*_WARN, 1),
    "IMPORTED": Look(*_GOOD, 6),
    "REMOVED": Look(*_WARN, 1),
    "REMOVED_FAILED": Look(*_BAD, 0),
    "DUPLICATE": Look(*_WARN, 1),
    "SKIPPED": Look(*_REST, 4),
    # of releases
    "DRAFT": Look(*_REST, 4),
    "SCHEDULED": Look(*_BUSY, 5),
    "FAILED": Look(*_BAD, 0),
    "CANCELLED": Look(*_REST, 4),
    # of a comparison
    "EQUAL": Look(*_GOOD, 6),
    "DIFFERS": Look(*_BAD, 0),
    "UNDER_WAY": Look(*_BUSY, 5),
    # of jobs, of one attempt at one, and of a time of a schedule
    "ACTIVE": Look(*_BUSY, 5),
    "GIVEN_UP": Look(*_BAD, 0),
    "ERROR": Look(*_BAD, 0),
    "DROPPED": Look(*_REST, 4),
    "TIMED_OUT": Look(*_WARN, 1),
    "LOST": Look(*_WARN, 1),
    "FIRED": Look(*_GOOD, 6),
    "MISSED": Look(*_WARN, 1),
    # of connectors
    "CONNECTED": Look(*_GOOD, 6),
    "LOOP": Look(*_WARN, 1),
    # of cleanup runs
    "REQUESTED": Look(*_BUSY, 5),
    "SUCCEEDED": Look(*_GOOD, 6),
    # of commands; SENT also of releases
    "ISSUED": Look(*_BUSY, 5),
    "SENT": Look(*_BUSY, 5),
    "SEEN": Look(*_BUSY, 5),
    "APPLIED": Look(*_GOOD, 6),
    "REJECTED": Look(*_BAD, 0),
    # of lines of the audit log
    "DONE": Look(*_GOOD, 6),
    "REFUSED": Look(*_WARN, 1),
    "UNANSWERED": Look(*_WARN, 1),
}
_UNKNOWN = Look(*_REST, 4)

URGENT = 2
"""States up to this rank are named first, with what to do."""


def look_of(state: str) -> Look:
    """Return how a state looks; one of a later version looks like nothing special."""
    return _LOOKS.get(state, _UNKNOWN)
