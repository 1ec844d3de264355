"""What a subscriber says of itself: its subscriptions, what it left out, and how it began."""

from dataclasses import dataclass

from psycopg import Connection

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.bookkeeping import positions
from packhorse.bookkeeping.positions import LEFT_OUT, LoadedSnapshot
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.snapshots import store
from packhorse.snapshots.snapshot import InvalidSnapshot, manifest_key_of
from packhorse.wire.messages import Status
from packhorse_services.pipeline.audit.outcome import listed
from packhorse_services.pipeline.errors import TaskRefused

_MOST_STATUSES = 1_000_000


@dataclass(frozen=True, slots=True)
class AuditedSubscription:
    """A subscription's position; it has not imported everything up to `started`."""

    agent: str
    offset: int
    started: int


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything in the subscriber's own database that says what its content must be."""

    journal_id: str
    subscriptions: tuple[AuditedSubscription, ...]
    decided: tuple[tuple[str, int, bool], ...] = ()
    """Publisher agent, offset and whether it was imported, as far as it still remembers."""
    joined: LoadedSnapshot | None = None
    """None also when nothing is known: a reset forgets it."""
    path_filter: PathFilter = EVERYTHING
    """Which nodes it takes."""

    @property
    def agents(self) -> list[str]:
        """The publisher agents that it follows."""
        return [subscription.agent for subscription in self.subscriptions]

    @property
    def added(self) -> tuple[AuditedSubscription, ...]:
        """The subscriptions that began after the snapshot that it is known to have joined by."""
        known = set(self.joined.agents) if self.joined else set(self.agents)
        return tuple(
            subscription for subscription in self.subscriptions if subscription.agent not in known
        )

    @property
    def continued(self) -> tuple[AuditedSubscription, ...]:
        """The other subscriptions."""
        return tuple(
            subscription for subscription in self.subscriptions if subscription not in self.added
        )

    @property
    def lowest(self) -> int:
        """The offset up to which every subscription is that was not added."""
        return min(subscription.offset for subscription in self.continued or self.subscriptions)

    @property
    def highest(self) -> int:
        """The highest offset that any subscription has."""
        return max(subscription.offset for subscription in self.subscriptions)


def read_situation(connection: Connection) -> Situation:
    """Return the situation in the caller's transaction, the one that content is read in.

    Raises `TaskRefused` when there is nothing to compare with.
    """
    act_as(connection, BOOKKEEPER)
    stored = positions.read_positions(connection)
    if not stored:
        raise TaskRefused("it has no subscription yet, so it has imported nothing")
    journals = {one.journal_id for one in stored}
    if len(journals) > 1:
        raise TaskRefused(
            "its subscriptions follow different journals (JOURNAL_MISMATCH); reset them"
        )
    subscriptions = tuple(AuditedSubscription(one.agent, one.offset, one.started) for one in stored)
    journal_id = journals.pop()
    return Situation(
        journal_id,
        subscriptions,
        decided=_decided(connection),
        joined=positions.read_loaded_snapshot(connection, journal_id),
        path_filter=PathFilter(*positions.read_filter(connection)),
    )


def _decided(connection: Connection) -> tuple[tuple[str, int, bool], ...]:
    """Return its own statuses: those that are not sent yet, and older ones that it still has."""
    found = positions.read_decisions(connection, _MOST_STATUSES + 1)
    if len(found) > _MOST_STATUSES:
        raise TaskRefused(f"it has more than {_MOST_STATUSES} statuses to send; let it send them")
    counts = (Status.IMPORTED.value, LEFT_OUT)
    return tuple((one.agent, one.offset, one.status in counts) for one in found)


@dataclass(frozen=True, slots=True)
class SubscriberStart:
    """What a subscriber began with, None when nothing is known, and what is to be said of it."""

    start: LoadedSnapshot | None = None
    notes: tuple[str, ...] = ()


def joining(blobs: BlobStore, situation: Situation) -> SubscriberStart:
    """Return what a subscriber began with. Raises `BlobStoreUnavailable`."""
    joined = situation.joined
    if joined is None:
        return SubscriberStart()
    name = f"it joined by snapshot {joined.id} at offset {joined.offset}"
    back = [
        subscription for subscription in situation.continued if subscription.offset < joined.offset
    ]
    if back:
        reported = (
            f"{name}, and the subscription of {back[0].agent} was moved back to before that; until "
            "it is there again, what the subscription has yet to import once more may be shown "
            "as extra or different"
        )
        return SubscriberStart(None, (reported,))
    try:
        store.read(manifest_key_of(joined.offset, joined.id), blobs)
    except (BlobMissing, InvalidSnapshot):
        name += ", whose manifest the blob store no longer has"
    return SubscriberStart(joined, (name,))


def notes_of(situation: Situation) -> list[str]:
    """Return what is to be said of the subscriptions, whatever they are compared with."""
    notes = []
    path_filter = situation.path_filter
    if not path_filter.holds_all:
        notes.append("it takes a part of the content by its filter, and that alone was compared")
    if path_filter.map_paths:
        paths = listed([f"{path} at {own}" for path, own in path_filter.map_paths])
        notes.append(f"paths are the author's: it has {paths}")
    if names := path_filter.exclude_properties:
        notes.append(f"properties that it leaves out were not compared: {listed(names)}")
    if len({subscription.offset for subscription in situation.subscriptions}) > 1:
        notes.append(
            "its subscriptions are at different offsets; where two publisher agents write the "
            "same paths it may hold another one's for now"
        )
    return notes + [
        _of_start(subscription, situation.joined)
        for subscription in situation.subscriptions
        if _began_behind(subscription, situation.joined)
    ]


def _began_behind(subscription: AuditedSubscription, joined: LoadedSnapshot | None) -> bool:
    """Return whether a subscription began behind something, which was not that snapshot."""
    if joined is None:
        return subscription.started >= 0
    return subscription.agent not in joined.agents or subscription.started > joined.offset


def _of_start(subscription: AuditedSubscription, joined: LoadedSnapshot | None) -> str:
    if joined is None:
        return (
            f"the subscription of {subscription.agent} began behind offset "
            f"{subscription.started} (a snapshot, a copy or "
            "the start policy latest); with --since-start only what came later counts"
        )
    if subscription.agent in joined.agents:
        return (
            f"the subscription of {subscription.agent} was moved forward to offset "
            f"{subscription.started}; what it jumped over is shown as missing"
        )
    return (
        f"the subscription of {subscription.agent} was added after the snapshot, behind offset "
        f"{subscription.started}; of that agent only what came later counts"
    )
