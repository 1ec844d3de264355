"""The transaction that loads a snapshot in place of the content, and moves the subscriptions.

It is fenced at both ends (R25). It locks the position of every subscription first, under the
lease's epoch: no import is under way then, and none can begin. It gives lease and subscriptions the
next epoch last: that fails for a worker that was replaced meanwhile. In between the lease can be
renewed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg import Connection

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.content import tree
from packhorse.content.node import ROOT, Node, ancestors_of, is_within
from packhorse.content.tree import copy_in
from packhorse.db.metadata import BOOKKEEPER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.db.rows import not_idle
from packhorse.jobs.content_changes.change import ChangeKind, ContentChange
from packhorse.jobs.content_changes.recording import record_changes
from packhorse.jobs.content_changes.watches import list_watches
from packhorse.packages.apply import invalidate
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.packages.region import Region
from packhorse.snapshots.parts import read_part
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse_services.subscriber.commands import control, ledger, reset
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Fenced
from packhorse_services.subscriber.journal.sequences import HighWater

_PROGRESS_NODES = 1_000
_PROGRESS_PARTS = 100
_DELETE_NODES = 100_000
"""Of one statement; however large the tree is, each ends long before the statement timeout."""


@dataclass(frozen=True, slots=True)
class Load:
    """What `subscriber` loads.

    What `path_filter` takes of `snapshot` below `roots`, for the subscriptions of its publisher
    agents.

    `package_ids` are those that each subscription has to remember at its new place. `progress` gets
    how many nodes were read, every now and then; what it raises ends the load, with nothing done.
    """

    subscriber: str
    snapshot: ContentSnapshot
    roots: Sequence[str]
    package_ids: Mapping[str, Sequence[str]]
    progress: Callable[[int], None]
    path_filter: PathFilter = EVERYTHING
    delete_nodes: int = _DELETE_NODES
    """How many nodes one statement removes at most."""

    @property
    def changed(self) -> Sequence[str]:
        """The own subtrees that may have changed."""
        return [top for root in self.roots for top in self.path_filter.own_tops(root)]


def load(connection: Connection, blobs: BlobStore, work: Load, epoch: int) -> int:
    """Do it in one transaction, and return the epoch after it, which the lease is to adopt.

    Readers of the content see the old one until the commit. Subscriptions of agents that the
    snapshot has not are forgotten: what they imported is not in the content any more. Clear
    commands that end at or below its offset are rejected, for what they were to remove is in the
    content now. Who listens for INVALIDATE hears of the roots, since such packages are jumped over
    too. The database says from then on which snapshot it began with.

    Raises:
        Fenced: another worker has the lease; nothing was done.
        LockNotAvailable: a subscription, or a command, is at work; nothing was done.
        BlobMissing, BlobCorrupt, PackageCorrupt, PackageRefused, Undecodable, InvalidPath,
        InvalidNode: the snapshot is not there, or not whole; nothing was done.
        psycopg.Error: the database refuses a node, or is away; then the outcome is unknown (R26).
    """
    _see_all_parts(work, blobs)
    agents = work.snapshot.publisher_agents
    for agent in agents:  # a row for `_move_subscriptions` to lock, which must be there before
        control.introduce(connection, agent)
    with connection.transaction():
        _lock_subscriptions(connection)
        _check_epoch(connection, epoch)
        act_as(connection, IMPORTER)
        _replace_content(connection, blobs, work)
        act_as(connection, BOOKKEEPER)
        _move_subscriptions(connection, work, epoch + 1)
        _record(connection, work)
        return reset.raise_epoch(connection, epoch)


def _see_all_parts(work: Load, blobs: BlobStore) -> None:
    """Raise `BlobMissing` before the work is begun that would end so."""
    for number, part in enumerate(work.snapshot.parts):
        if number % _PROGRESS_PARTS == 0:
            work.progress(0)
        for file in part.files:
            if blobs.head(file.key) is None:
                raise BlobMissing(f"the blob store has no {file.key}")


def _lock_subscriptions(connection: Connection) -> None:
    """Do it as a reset does; what follows may wait for locks as long as the session may."""
    limit = connection.execute("SELECT current_setting('lock_timeout')").fetchone()
    reset.lock_subscriptions(connection)
    connection.execute("SELECT set_config('lock_timeout', %s, true)", limit)


def _check_epoch(connection: Connection, epoch: int) -> None:
    rows = connection.execute(
        "SELECT FROM bookkeeping.lease WHERE epoch <> %(epoch)s UNION ALL "
        "SELECT FROM bookkeeping.position WHERE epoch <> %(epoch)s",
        {"epoch": epoch},
    )
    if rows.rowcount:
        raise Fenced("another worker has the lease of this database")


def _replace_content(connection: Connection, blobs: BlobStore, work: Load) -> None:
    taken = work.path_filter
    for root in work.roots:
        for region in taken.regions_at(root):
            _remove(connection, region, region.top_in(root) or root, work)
    nodes = _counted(not_idle(connection, _all_nodes(work.snapshot, blobs)), work.progress)
    held = (node for node in nodes if taken.holds(node.path))
    copy_in(connection, map(taken.node, _below(work.roots, held)))
    tops = {*map(taken.own, (*work.roots, *taken.include)), *taken.spared} - {ROOT}
    above = [top for top in sorted(tops) if tree.exists(connection, top)]
    tree.add_folders(connection, [path for top in above for path in ancestors_of(top)])
    invalidate(connection, work.snapshot.package_id, work.changed)


def _remove(connection: Connection, region: Region, top: str, work: Load) -> None:
    """Remove what is taken of a region at and below `top`."""
    for part in tree.cut(connection, region.own(top), work.delete_nodes):
        work.progress(0)
        parts = region.rules.parts_of(region.their_part(part))
        tree.delete_parts(connection, [*map(region.own_part, parts)])


def _all_nodes(snapshot: ContentSnapshot, blobs: BlobStore) -> Iterator[Node]:
    for part in snapshot.parts:
        yield from read_part(part, blobs)


def _counted(nodes: Iterable[Node], progress: Callable[[int], None]) -> Iterator[Node]:
    for number, node in enumerate(nodes):
        if number % _PROGRESS_NODES == 0:
            progress(number)
        yield node


def _below(roots: Sequence[str], nodes: Iterable[Node]) -> Iterator[Node]:
    if ROOT in roots:
        yield from nodes
        return
    for node in nodes:
        if any(is_within(node.path, root) for root in roots):
            yield node


def _move_subscriptions(connection: Connection, work: Load, new_epoch: int) -> None:
    snapshot = work.snapshot
    reset.forget_others(connection, snapshot.publisher_agents)
    for agent in sorted(snapshot.publisher_agents):
        control.lock(connection, agent)  # who marks statuses as sent waits, and sees the new epoch
        reset.move(connection, new_epoch, _target(work, agent))
        ledger.abandon_clears(
            connection,
            work.subscriber,
            f"a snapshot at offset {snapshot.offset} was loaded before it was done",
            agent=agent,
            up_to=snapshot.offset,
        )


def _record(connection: Connection, work: Load) -> None:
    """Say which snapshot the content began with, for the audit: no offset says that.

    Whoever watches content is notified that all below the roots may have changed (R34).
    """
    snapshot = work.snapshot
    connection.execute(
        """
        INSERT INTO bookkeeping.joined_snapshot
            (snapshot_id, log_offset, journal_id, publisher_agents, subscriber, left_out)
        VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (singleton) DO UPDATE SET
            snapshot_id = excluded.snapshot_id, log_offset = excluded.log_offset,
            journal_id = excluded.journal_id, publisher_agents = excluded.publisher_agents,
            subscriber = excluded.subscriber, left_out = excluded.left_out,
            joined_at = clock_timestamp()
        """,
        (
            snapshot.id,
            snapshot.offset,
            snapshot.journal_id,
            list(snapshot.publisher_agents),
            snapshot.subscriber,
            snapshot.left_out,
        ),
    )
    source = {"subscriber": work.subscriber, "package_id": snapshot.package_id}
    change = ContentChange(ChangeKind.CHANGED, (), work.changed, source)
    record_changes(connection, list_watches(connection), [change])


def _target(work: Load, agent: str) -> reset.ResetTarget:
    high_water = HighWater({})
    for applied in work.snapshot.sequences:
        if applied.publisher_agent == agent:
            mark = (applied.epoch, applied.sequence)
            high_water.note(applied.producer, mark, applied.log_offset)
    snapshot = work.snapshot
    place = Mark(snapshot.offset, snapshot.package_id)
    ids = work.package_ids.get(agent, ())
    return reset.ResetTarget(agent, snapshot.journal_id, place, high_water, ids)
