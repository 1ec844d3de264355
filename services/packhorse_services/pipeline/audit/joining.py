"""The snapshot that a subscriber began with, by its own record."""

from dataclasses import dataclass

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.bookkeeping.positions import LoadedSnapshot
from packhorse.snapshots.snapshot import InvalidSnapshot, manifest_key_of
from packhorse.snapshots.store import read
from packhorse_services.pipeline.audit.outcome import listed
from packhorse_services.pipeline.audit.subscriber_state import AuditedSubscription, Situation


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
        read(manifest_key_of(joined.offset, joined.id), blobs)
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
