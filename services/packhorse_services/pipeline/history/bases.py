"""Which snapshots hold just the content that a fold goes on from, whoever else is archived."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from packhorse.bookkeeping.positions import LoadedSnapshot
from packhorse.snapshots.snapshot import ContentSnapshot, left_out


@dataclass(frozen=True, slots=True)
class AddedSubscription:
    """A subscription that a subscriber got after its snapshot.

    It has imported `started` + 1 to `offset`.

    `removed` are the packages in there that it did not import.
    """

    started: int
    offset: int
    removed: frozenset[int] = frozenset()


def known_agents(
    archived: Iterable[str], snapshots: Iterable[ContentSnapshot], journal_id: str
) -> set[str]:
    """Return the publisher agents of a journal: also those whose packages have all expired."""
    held = (one.publisher_agents for one in snapshots if one.journal_id == journal_id)
    return {agent for agent in archived if agent}.union(*held)


def began(
    first: Mapping[str, int], snapshots: Iterable[ContentSnapshot], journal_id: str
) -> dict[str, int]:
    """Return an offset at or behind the first package of each agent, the lowest that is known.

    `first` has the first archived one of each; earlier ones that have expired are in a snapshot.
    """
    found = dict(first)
    for snapshot in snapshots:
        if snapshot.journal_id == journal_id:
            for agent in snapshot.publisher_agents:
                found[agent] = min(found.get(agent, snapshot.offset), snapshot.offset)
    return found


def serves(base: ContentSnapshot, agents: Collection[str], began: Mapping[str, int]) -> bool:
    """Return whether a snapshot is one of `agents`, of whom some may have begun only behind it."""
    others = set(agents) - set(base.publisher_agents)
    return set(base.publisher_agents) <= set(agents) and all(
        base.offset < began.get(agent, base.offset + 1) for agent in others
    )


def leaves_out(
    base: ContentSnapshot,
    subscriber: str,
    offsets: Collection[int],
    start: LoadedSnapshot | None = None,
) -> bool:
    """Return whether a snapshot lacks exactly the packages of `offsets` that are not above it.

    With `start`, those that this one lacks are absent up to its offset, whatever `offsets` say. One
    for somebody else lacks others of the packages that name subscribers.
    """
    if start is None:
        return base.subscriber in ("", subscriber) and base.left_out == left_out(
            offset for offset in offsets if offset <= base.offset
        )
    if base.id == start.id:
        return True
    more = any(start.offset < offset <= base.offset for offset in offsets)
    alike = (base.subscriber, base.left_out) == (start.subscriber, start.left_out)
    return base.offset >= start.offset and alike and not more


def suits_added(
    base: ContentSnapshot,
    added: Mapping[str, AddedSubscription],
    began: Mapping[str, int],
    *,
    unknown: int,
    start: LoadedSnapshot | None,
) -> bool:
    """Return whether added subscriptions can be folded onto a snapshot.

    The archive is whole since `unknown`.

    One that is in the snapshot must have begun with its agent's first package, as far as anybody
    knows, and be past it; of any other the archive must have all that it imported.
    """

    def suits(agent: str, subscription: AddedSubscription) -> bool:
        first = began.get(agent, max(subscription.started, base.offset) + 1)
        if agent not in base.publisher_agents:
            return unknown <= subscription.started or base.offset < first
        differs = start is not None and any(
            offset <= base.offset for offset in subscription.removed
        )
        return subscription.started < first and base.offset <= subscription.offset and not differs

    return all(suits(agent, subscription) for agent, subscription in added.items())
