"""Where a client is in the three logs that it follows, as one text: the id of an event.

`p17.5f2c81d0-s4.90ab12ff-e2.0c77e1a3`: the next offset of the package topic (p), of the status
topic (s) and of the agent's partition of the event topic (e), each with a mark of the log that the
offset belongs to. One without a mark is taken to be of the log that is there now.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from packhorse.runtime.feed import unknown_event_id
from packhorse_services.publisher.live.events import EventType

_MAX_OFFSET = 2**63 - 1
_PART = r"([0-9]{1,19})(?:\.([0-9a-f]{8}))?"
_FORM = re.compile(f"p{_PART}-s{_PART}-e{_PART}", re.ASCII)


LOGS = {EventType.PACKAGE: "p", EventType.STATUS: "s", EventType.DISTRIBUTED: "e"}
"""The events that come from a log, each with the letter of its log in a position."""


@dataclass(frozen=True, slots=True)
class LogCursor:
    """The offset of the next record that a client has not seen, and the mark of its log."""

    offset: int
    mark: str = ""


Position = Mapping[EventType, LogCursor]
"""A cursor for each of `LOGS`."""


def mark_of(identity: str, partition: int) -> str:
    """Return the mark of a log: another one when the topic was created anew (R24)."""
    return hashlib.sha256(f"{identity}/{partition}".encode()).hexdigest()[:8]


def write_position(position: Position) -> str:
    """Return the text of a position."""
    return "-".join(_write(source, position[source]) for source in LOGS)


def _write(source: EventType, cursor: LogCursor) -> str:
    mark = f".{cursor.mark}" if cursor.mark else ""
    return f"{LOGS[source]}{cursor.offset}{mark}"


def read_position(text: str) -> dict[EventType, LogCursor]:
    """Return the position that a client sends back. Raises `Problem` 422."""
    found = _FORM.fullmatch(text)
    if found is not None:
        groups = found.groups(default="")
        cursors = [
            LogCursor(int(offset), mark)
            for offset, mark in zip(groups[::2], groups[1::2], strict=True)
        ]
        if all(cursor.offset <= _MAX_OFFSET for cursor in cursors):
            return dict(zip(LOGS, cursors, strict=True))
    raise unknown_event_id()
