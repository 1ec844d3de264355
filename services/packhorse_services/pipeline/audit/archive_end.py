"""Whether the archive has what a subscriber has imported, and waiting until it has."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from packhorse.clock import Clock, SystemClock
from packhorse.errors import PackhorseError
from packhorse_services.pipeline.audit.subscriber_state import Situation
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.headers import agents_of, reaches
from packhorse_services.pipeline.history.packages import BronzeVersion
from packhorse_services.pipeline.history.read import bronze_version
from packhorse_services.pipeline.history.target import HistoryTarget, nothing_archived
from packhorse_services.pipeline.storage.location import Location

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
