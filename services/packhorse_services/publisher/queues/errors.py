"""What subscribers did not import: error queues, and what was cleared (R18, R19).

Read from the status topic from its beginning; a status that comes again changes nothing (R9).
"""

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from packhorse.messaging.api import Record
from packhorse.wire.codec import decode_status
from packhorse.wire.messages import Status, StatusMessage
from packhorse.wire.record import Undecodable

logger = logging.getLogger(__name__)

_MAX_FAILED = 10_000
_MAX_REMOVED = 1_000_000
_MAX_SUBSCRIBERS = 10_000
_MAX_REASON = 2_000


@dataclass(frozen=True, slots=True)
class FailedPackage:
    """A package that a subscriber gave up on."""

    offset: int
    package_id: str
    attempts: int
    reason: str
    decided_ms: int


@dataclass(slots=True)
class _Outcomes:
    """Of one subscriber; the oldest go when there are too many."""

    failed: list[FailedPackage] = field(default_factory=list)
    removed: "array[int]" = field(default_factory=lambda: array("q"))


class ErrorQueues:
    """Of all subscribers of one publisher agent. Written by one thread, read by any."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._outcomes: dict[str, _Outcomes] = {}

    def note(self, record: Record, _fresh: bool) -> None:
        """Take in a status."""
        try:
            status = decode_status(record.headers, record.value)
        except Undecodable as error:
            logger.warning("no status", extra={"offset": record.offset, "error": str(error)})
            return
        if status.publisher_agent != self._agent or status.status is Status.IMPORTED:
            return
        if status.subscriber in self._outcomes or len(self._outcomes) < _MAX_SUBSCRIBERS:
            outcomes = self._outcomes.setdefault(status.subscriber, _Outcomes())
            if status.status is Status.REMOVED:
                _add_removed(outcomes.removed, status.offset)
            else:
                _add_failed(outcomes.failed, status)

    def count(self, subscriber: str) -> int:
        """Return how many packages the subscriber gave up on."""
        outcomes = self._outcomes.get(subscriber)
        return len(outcomes.failed) if outcomes else 0

    def page(self, subscriber: str, after: int, limit: int) -> Sequence[FailedPackage]:
        """Return the first `limit` of them above `after`, oldest first."""
        outcomes = self._outcomes.get(subscriber)
        if outcomes is None:
            return ()
        start = bisect_right(outcomes.failed, after, key=_offset)
        return outcomes.failed[start : start + limit]

    def failure(self, subscriber: str, offset: int) -> FailedPackage | None:
        """Return how the package at `offset` failed, or None when it did not."""
        found = self.page(subscriber, offset - 1, 1)
        return found[0] if found and found[0].offset == offset else None

    def was_removed(self, subscriber: str, offset: int) -> bool:
        """Tell whether the package at `offset` was cleared."""
        outcomes = self._outcomes.get(subscriber)
        return outcomes is not None and _holds(outcomes.removed, offset)


def _offset(failed: FailedPackage) -> int:
    return failed.offset


def _add_failed(failed: list[FailedPackage], status: StatusMessage) -> None:
    place = bisect_left(failed, status.offset, key=_offset)
    if place < len(failed) and failed[place].offset == status.offset:
        return
    entry = FailedPackage(
        status.offset,
        status.package_id[:200],
        status.attempts,
        status.reason[:_MAX_REASON],
        status.decided_ms,
    )
    failed.insert(place, entry)
    if len(failed) > _MAX_FAILED:
        del failed[0]


def _add_removed(removed: "array[int]", offset: int) -> None:
    if not _holds(removed, offset):
        removed.insert(bisect_left(removed, offset), offset)
    if len(removed) > _MAX_REMOVED:
        del removed[: _MAX_REMOVED // 10]


def _holds(removed: "array[int]", offset: int) -> bool:
    place = bisect_left(removed, offset)
    return place < len(removed) and removed[place] == offset
