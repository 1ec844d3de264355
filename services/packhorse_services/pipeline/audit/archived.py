"""What an audit asks of the archive: whether it has what subscribers imported, and who lives."""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from packhorse.clock import Clock, SystemClock
from packhorse.errors import PackhorseError
from packhorse_services.pipeline.audit.subscriber_state import Situation
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.headers import agents_of, reaches
from packhorse_services.pipeline.history.packages import BronzeVersion
from packhorse_services.pipeline.history.read import asked, bronze_version
from packhorse_services.pipeline.history.target import HistoryTarget, nothing_archived
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION

_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class ArchiveEnd:
    """The end of the archive, to which a subscriber in use is always a little ahead."""

    location: Location
    package_topic: str
    wait_s: float = 0.0
    """How long a package that a subscriber has imported may take to come into the archive."""
    archive: Callable[[], None] | None = None
    """Archives what the journal holds, where nobody else has done so by then."""
    clock: Clock = field(default_factory=SystemClock)
    _held: dict[tuple[str, BronzeVersion], int] = field(default_factory=dict)
    """Of a journal and a version of bronze: an offset up to which it is known to be there."""

    def reached(self, situation: Situation) -> HistoryTarget:
        """Return where the furthest subscription is, once that is archived.

        Raises `TaskRefused` when it still is not after `wait_s` and can't be archived now, or the
        archive is of another journal.
        """
        version = bronze_version(self.location, self.package_topic)
        if not self._has(situation, version):
            self._require_journal(situation, version)
            version = self._awaited(situation, version)
        agents = tuple(situation.agents)
        return HistoryTarget(situation.journal_id, agents, situation.highest, "", version)

    def _awaited(self, situation: Situation, seen: BronzeVersion) -> BronzeVersion:
        until = self.clock.monotonic() + self.wait_s
        while True:
            newest = bronze_version(self.location, self.package_topic)
            if newest != seen and self._has(situation, newest):
                return newest
            if self.clock.monotonic() >= until:
                return self._archived(situation)
            seen = newest
            self.clock.wait(threading.Event(), _LOOK_S)

    def _archived(self, situation: Situation) -> BronzeVersion:
        """Archive the rest of the journal, and return the version that has it."""
        why = ""
        if self.archive is not None:
            try:
                self.archive()
            except PackhorseError as error:
                why = f" (it could not be archived now: {error})"
        version = bronze_version(self.location, self.package_topic)
        if self._has(situation, version):
            return version
        raise TaskRefused(self._behind(situation, version) + why)

    def _has(self, situation: Situation, version: BronzeVersion) -> bool:
        """Return whether the archive reaches that far; files of what came before stay closed."""
        asked = situation.journal_id, version
        if situation.highest <= self._held.get(asked, -1):
            return True
        if not reaches(self.location, version, situation.journal_id, situation.highest):
            return False
        self._held[asked] = situation.highest
        return True

    def _require_journal(self, situation: Situation, version: BronzeVersion) -> None:
        """Raise `TaskRefused` when only packages of other journals are archived."""
        journals = {one.journal_id for one in agents_of(self.location, version)}
        if journals and situation.journal_id not in journals:
            raise TaskRefused(
                f"the archive has nothing of its journal {situation.journal_id}; it follows "
                "another one (JOURNAL_MISMATCH), or the archive has not begun"
            )

    def _behind(self, situation: Situation, version: BronzeVersion) -> str:
        every = agents_of(self.location, version)
        own = [one.last for one in every if one.journal_id == situation.journal_id]
        if not own:
            return nothing_archived(self.location, self.package_topic)
        return (
            f"it is at offset {situation.highest}, ahead of the archive, which ends at "
            f"{max(own)}; run packhorse-pipeline archive first, or beside the audit with "
            "--continuous, or let the audit --wait for longer than an archive takes to come"
        )


_LIVE_MS = 24 * 3600 * 1000
"""So long a publisher counts a subscriber after its last word."""

_MS = "arrow_cast(\"time\", 'Int64') / 1000"


def unaudited(location: Location, audited: Collection[str]) -> list[str]:
    """Return the subscribers, by name, that are live and not among those `audited`.

    Live is who announced itself in the day before the newest announcement in the archive: its
    clock is the journal's (R28), and it may not have run for a while. What says a time to come
    does not count.
    """
    now_ms = SystemClock().wall_ms()
    with translated("audit"):
        newest_ms = _newest_ms(location, now_ms)
        if newest_ms is None:
            return []
        since_ms = newest_ms - _LIVE_MS
        days = f"day BETWEEN {_day(since_ms)} AND {_day(newest_ms)}"
        live = f"{days} AND {_MS} BETWEEN {since_ms} AND {now_ms}"
        sql = f"SELECT DISTINCT subscriber FROM {RELATION} WHERE {live}"  # noqa: S608 - numbers
        names = (row["subscriber"] for row in asked(location, tables.ANNOUNCEMENTS, sql))
        return sorted(set(names).difference(audited))


def _newest_ms(location: Location, now_ms: int) -> int | None:
    """Return the newest time up to now, found by the days that the table is partitioned by."""
    days = asked(location, tables.ANNOUNCEMENTS, f"SELECT DISTINCT day FROM {RELATION}")  # noqa: S608
    for day in sorted((f"DATE '{row['day']}'" for row in days), reverse=True):
        wanted = f"day = {day} AND {_MS} <= {now_ms}"
        sql = f"SELECT max({_MS}) AS ms FROM {RELATION} WHERE {wanted}"  # noqa: S608 - numbers
        [newest] = asked(location, tables.ANNOUNCEMENTS, sql)
        if newest["ms"] is not None:
            return int(newest["ms"])
    return None


def _day(time_ms: int) -> str:
    return f"DATE '{datetime.fromtimestamp(time_ms / 1000, UTC).date()}'"
