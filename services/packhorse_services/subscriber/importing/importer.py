"""The one transaction: position, content, sequences and statuses, all or nothing (R8, R9)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.content.node import ROOT, InvalidPath
from packhorse.db.metadata import BOOKKEEPER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.change import ContentChange, rows_of
from packhorse.jobs.content_changes.recording import changes_of, record_changes
from packhorse.jobs.content_changes.watches import READ_WATCHES, ContentWatch, as_watches
from packhorse.packages.apply import apply
from packhorse.packages.limits import LIMITS, PackageLimits
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.wire.actions import Paths, touched
from packhorse.wire.messages import PackageEntry, PackageMessage
from packhorse_services.subscriber.announce.statuses import Decision, record_statuses
from packhorse_services.subscriber.commands import ledger
from packhorse_services.subscriber.importing import path_locks
from packhorse_services.subscriber.importing.remembered import PackageMemory
from packhorse_services.subscriber.journal import position as positions
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.journal.selection import Selection
from packhorse_services.subscriber.journal.sequences import HighWater


@dataclass(frozen=True, slots=True)
class Import:
    """What one transaction does: go to `mark`, apply `packages`, report `decisions`."""

    mark: Mark
    high_water: HighWater
    packages: Sequence[PackageMessage] = ()
    decisions: Sequence[Decision] = ()
    cleared_up_to: int | None = None
    """Clear commands with a bound at or below this offset are done with it."""

    @property
    def package_ids(self) -> list[str]:
        """The ids of all that is imported or decided, some of them twice."""
        imported = [package.entry.package_id for package in self.packages]
        return imported + [decision.mark.package_id for decision in self.decisions]


@dataclass(frozen=True, slots=True)
class Importer:
    """Applies packages to this subscriber's repository, below `roots` only (R14).

    Of those only what `path_filter` takes, and where that places it (R35).
    """

    subscriber: str
    blobs: BlobStore
    roots: Sequence[str] = (ROOT,)
    limits: PackageLimits = field(default=LIMITS)
    memory: PackageMemory = field(default=PackageMemory())
    path_filter: PathFilter = EVERYTHING

    @property
    def selection(self) -> Selection:
        """What it takes of the packages."""
        return Selection(self.subscriber, self.path_filter)

    def commit(self, connection: Connection, position: Position, work: Import) -> Position:
        """Do `work` in one transaction and return the position after it.

        Raises `Fenced` before anything is written when another worker has moved the position.
        After any other error but the database's refusal the outcome may be unknown (R26).
        """
        with connection.transaction():
            moved = positions.move(connection, position, work.mark)
            watches, changes = list[ContentWatch](), list[ContentChange]()
            if work.packages:
                with connection.pipeline():
                    found = connection.execute(READ_WATCHES)
                    act_as(connection, IMPORTER)
                    path_locks.lock(connection, work.packages, self._touches)
                watches = as_watches(found)
                changes = self._apply(connection, work.packages, watched=bool(watches))
            # Nothing slow is done in a pipeline: a worker that is paused in one is not idle to
            # the server, whose time limit on idle transactions then does not end it.
            with connection.pipeline():
                act_as(connection, BOOKKEEPER)
                work.high_water.store(connection, position.agent)
                self.memory.store(connection, position.agent, work.package_ids)
                record_statuses(connection, self.subscriber, position, work.decisions)
                self._account_for_clears(connection, position, work)
            if changes:
                record_changes(connection, watches, changes)
        return moved

    def _apply(
        self, connection: Connection, packages: Sequence[PackageMessage], *, watched: bool
    ) -> list[ContentChange]:
        """Apply packages, and return what they change where somebody watches."""
        changes: list[ContentChange] = []
        for row in rows_of(packages) if watched else (packages,):
            if watched:
                changes += changes_of(connection, [*map(self._taken, row)], self.subscriber)
            apply(
                connection,
                row,
                self.blobs,
                roots=self.roots,
                limits=self.limits,
                path_filter=self.path_filter,
            )
        return changes

    def _touches(self, entry: PackageEntry) -> tuple[Paths, Paths]:
        """Return own paths that a package changes: the folders above them are not the author's."""
        nodes, subtrees = touched(entry)
        if not self.path_filter.map_paths:
            return nodes, subtrees
        own_tops = self.path_filter.own_tops
        deep = tuple(top for path in subtrees for top in own_tops(path))
        return tuple(map(self.path_filter.own, nodes)), deep

    def _taken(self, package: PackageMessage) -> PackageMessage:
        """Return a package that names what is taken; one with a bad path fails when applied."""
        try:
            return replace(package, entry=self.path_filter.narrowed(package.entry))
        except InvalidPath:
            return package

    def _account_for_clears(self, connection: Connection, position: Position, work: Import) -> None:
        ledger.count_removed(connection, [decision.command_id for decision in work.decisions])
        if work.cleared_up_to is not None:
            ledger.finish_clears(
                connection,
                self.subscriber,
                position.agent,
                position.journal_id,
                work.cleared_up_to,
            )
