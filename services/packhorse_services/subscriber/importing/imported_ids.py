"""Ids of packages that were imported lately, by which repeats are recognized (R31)."""

import logging
from collections.abc import Callable, Iterable

from psycopg import Connection

from packhorse.messaging.api import Journal, Record
from packhorse.messaging.reading import read_range
from packhorse.wire.messages import Status
from packhorse.wire.package_codec import AGENT_HEADER
from packhorse_services.subscriber.announce.statuses import Decision
from packhorse_services.subscriber.journal.arrivals import package_id_of
from packhorse_services.subscriber.journal.grouping import Group
from packhorse_services.subscriber.journal.position import Position

logger = logging.getLogger(__name__)

_REPEAT = "it repeats the number of a package that was processed before, and was not imported"

_KEPT = 20_000
_AT_A_TIME = 500

Earlier = Callable[[int, int], Iterable[Record]]
"""Returns what the log still has from one offset up to, not including, another, without values."""


def earlier_in(journal: Journal, topic: str) -> Earlier:
    """Return how to look into a log; asking raises `JournalUnavailable`."""

    def read(start: int, end: int) -> Iterable[Record]:
        return read_range(journal, topic, max(start, journal.bounds(topic).oldest), end)

    return read


def _nothing(_start: int, _end: int) -> Iterable[Record]:
    return ()


class ImportedIds:
    """The newest ids that a subscription has imported, bounded (R30).

    An append whose outcome was unknown may be in the log twice under one id, close together. What
    was imported before this process began is looked up in the log, as far back as ids are kept. A
    repeat under another id, or one of an id that is farther away, is reported as DUPLICATE.
    """

    def __init__(self, earlier: Earlier = _nothing) -> None:
        self._earlier = earlier
        self._ids: dict[str, None] = {}
        self._recalled: set[str] = set()
        self._span: tuple[int, int, int] | None = None
        """Of what epoch ids were looked up, the lowest offset that was, and the lowest to be."""

    def add(self, package_ids: Iterable[str]) -> None:
        """Note what a transaction that has committed has imported."""
        for package_id in package_ids:
            self._ids[package_id] = None
        while len(self._ids) > _KEPT:
            del self._ids[next(iter(self._ids))]

    def duplicates(
        self, connection: Connection, position: Position, group: Group
    ) -> list[Decision]:
        """Return the decisions about repeats of which the package itself is not here; log all.

        Raises `JournalUnavailable`.
        """
        repeats = group.repeats
        if not repeats:
            return []
        self._recall(connection, position, group)
        unknown = self._unknown(group)
        missing = [mark for mark in repeats if mark.package_id in unknown]
        logger.warning(
            "packages are passed as repeats",
            extra={
                "agent": position.agent,
                "packages": len(repeats),
                "first_offset": repeats[0].offset,
                "first_package_id": repeats[0].package_id,
                "not_imported": len(missing),
            },
        )
        return [Decision(mark, Status.DUPLICATE, reason=_REPEAT) for mark in missing]

    def _recall(self, connection: Connection, position: Position, group: Group) -> None:
        """Look in the log, newest first, for the repeats of a group that nobody here remembers."""
        if not self._unknown(group):
            return
        if self._span is None or self._span[0] != position.epoch:
            behind = position.offset + 1
            floor = max(position.started_offset + 1, behind - _KEPT)
            self._recalled, self._span = set(), (position.epoch, behind, floor)
        epoch, end, floor = self._span
        while end > floor and self._unknown(group):
            start = max(floor, end - _AT_A_TIME)
            self._recalled |= self._imported_in(connection, position.agent, start, end)
            end = start
            self._span = epoch, end, floor

    def _imported_in(self, connection: Connection, agent: str, start: int, end: int) -> set[str]:
        rows = connection.execute(
            "SELECT log_offset FROM bookkeeping.status WHERE publisher_agent = %s "
            "AND log_offset >= %s AND log_offset < %s AND status <> 'IMPORTED'",
            (agent, start, end),
        )
        others = {offset for (offset,) in rows.fetchall()}
        return {
            package_id_of(record.headers)
            for record in self._earlier(start, end)
            if record.headers.get(AGENT_HEADER) == agent.encode() and record.offset not in others
        }

    def _unknown(self, group: Group) -> set[str]:
        repeats = {mark.package_id for mark in group.repeats}
        coming = {mark.package_id for mark, _ in group.fresh}
        return repeats - coming - self._recalled - self._ids.keys()
