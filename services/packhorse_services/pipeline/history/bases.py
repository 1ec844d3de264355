"""Which snapshots hold just the content that a fold goes on from, whoever else is archived."""

from collections.abc import Collection, Iterable, Mapping

from packhorse.snapshots.snapshot import Snapshot, left_out


def known_agents(
    archived: Iterable[str], snapshots: Iterable[Snapshot], journal_id: str
) -> set[str]:
    """Return the publisher agents of a journal: also those whose packages have all expired."""
    held = (one.publisher_agents for one in snapshots if one.journal_id == journal_id)
    return {agent for agent in archived if agent}.union(*held)


def began(
    first: Mapping[str, int], snapshots: Iterable[Snapshot], journal_id: str
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


def serves(base: Snapshot, agents: Collection[str], began: Mapping[str, int]) -> bool:
    """Tell whether a snapshot is one of `agents`, of whom some may have begun only behind it."""
    others = set(agents) - set(base.publisher_agents)
    return set(base.publisher_agents) <= set(agents) and all(
        base.offset < began.get(agent, base.offset + 1) for agent in others
    )


def leaves_out(base: Snapshot, subscriber: str, offsets: Collection[int]) -> bool:
    """Tell whether a snapshot lacks exactly the packages of `offsets` that are not above it."""
    return base.subscriber in ("", subscriber) and base.left_out == left_out(
        offset for offset in offsets if offset <= base.offset
    )
