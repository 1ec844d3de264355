"""How far a reader of stored events has got: a snapshot of the database, not a number.

Events become visible in the order of commits, whatever their numbers are. So a reader remembers
which transactions had ended when it looked (`pg_snapshot`), and what is new is what has become
visible since: nothing is lost to a transaction that was long, or that commits after a later one.
"""

import re
from dataclasses import dataclass

from packhorse.errors import Permanent

_LONGEST = 64 * 1024
_SNAPSHOT = r"(?:[0-9]{1,19}:[0-9]{1,19}:(?:[0-9]{1,19}(?:,[0-9]{1,19})*)?)"
_TEXT = re.compile(rf"({_SNAPSHOT})(?:;({_SNAPSHOT});([0-9]{{1,18}});([0-9]{{1,18}}))?", re.ASCII)


class InvalidPosition(Permanent):
    """A text that is no position; begin without one."""


@dataclass(frozen=True, slots=True)
class EventRound:
    """The events that have become visible until a later snapshot, and how many were read."""

    upto: str
    """The later snapshot, in which all of the round are visible."""
    passed: int
    """Everything of the round up to this number was read."""
    last: int
    """The highest number of the round."""


@dataclass(frozen=True, slots=True)
class EventPosition:
    """All that was visible in a snapshot was read, and a part of the round that follows."""

    seen: str
    """The snapshot, as Postgres writes it: `xmin:xmax:xip,…`."""
    round: EventRound | None = None

    def __str__(self) -> str:
        if self.round is None:
            return self.seen
        return f"{self.seen};{self.round.upto};{self.round.passed};{self.round.last}"


def parse_position(text: str) -> EventPosition:
    """Return the position that a text stands for. Raises `InvalidPosition`.

    The text may be a stranger's; Postgres has the last word on its snapshots.
    """
    found = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise InvalidPosition("that is no position of an event; begin without one")
    seen, upto, passed, last = found.groups()
    return EventPosition(seen, None if upto is None else EventRound(upto, int(passed), int(last)))
