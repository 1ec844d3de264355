"""The snapshot that a subscriber began with: by its own record, or else as far as can be guessed.

A database that joined before there were such records says where its subscriptions began, and
nowhere which snapshot was loaded there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.snapshots.snapshot import ContentSnapshot, InvalidSnapshot, manifest_key_of
from packhorse.snapshots.store import all_of, read
from packhorse_services.pipeline.audit.outcome import listed
from packhorse_services.pipeline.audit.subscriber_state import (
    AuditedSubscription,
    Joined,
    Situation,
)
from packhorse_services.pipeline.history.bases import Start


@dataclass(frozen=True, slots=True)
class SubscriberStart:
    """What a subscriber began with, None when nothing is known, and what is to be said of it."""

    start: Start | None = None
    notes: tuple[str, ...] = ()


def joining(blobs: BlobStore, subscriber: str, situation: Situation) -> SubscriberStart:
    """Return what `subscriber` began with. Raises `BlobStoreUnavailable`."""
    if situation.joined is not None:
        return _recorded(blobs, situation.joined, situation)
    candidates = _candidates(blobs, subscriber, situation)
    return SubscriberStart(
        candidates[0] if candidates else None, tuple(_doubts(situation, candidates))
    )


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


def _began_behind(subscription: AuditedSubscription, joined: Joined | None) -> bool:
    """Return whether a subscription began behind something, which was not that snapshot."""
    if joined is None:
        return subscription.started >= 0
    return subscription.agent not in joined.agents or subscription.started > joined.offset


def _of_start(subscription: AuditedSubscription, joined: Joined | None) -> str:
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


def _recorded(blobs: BlobStore, joined: Joined, situation: Situation) -> SubscriberStart:
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


def _candidates(blobs: BlobStore, subscriber: str, situation: Situation) -> list[ContentSnapshot]:
    """Return the snapshots that it may have loaded, the one that it would choose first.

    They are of just its publisher agents, at the one offset behind which all its subscriptions
    began: those for it, those for everybody, and those for others (it may wait for one, ADR 0014).
    """
    starts = {subscription.started for subscription in situation.subscriptions}
    start = starts.pop()
    if starts or start < 0:
        return []
    found = [
        one
        for one in takewhile(lambda one: one.offset >= start, all_of(blobs))
        if (one.offset, one.journal_id) == (start, situation.journal_id)
        and set(one.publisher_agents) == set(situation.agents)
    ]
    return sorted(found, key=lambda one: (one.subscriber != subscriber, one.subscriber != ""))


def _doubts(situation: Situation, candidates: Sequence[ContentSnapshot]) -> list[str]:
    """Return what is to be said of a beginning that is not certain; the best candidate counts."""
    if all(subscription.started < 0 for subscription in situation.subscriptions):
        return []
    if not candidates:
        return [
            "the blob store has no snapshot with which all its subscriptions can have begun; "
            "if one was loaded, what that one left out is shown as missing"
        ]
    first, *others = candidates
    reported = [
        f"if it began with a snapshot, it is held to {first.id} at {first.offset} and the rest"
    ]
    unlike = [one for one in others if one.left_out != first.left_out]
    if unlike:
        reported.append(
            f"it may have loaded {unlike[0].id} of that offset instead, which leaves out other "
            "packages; what they changed is then shown as missing, extra or different"
        )
    return reported
