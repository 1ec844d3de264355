"""Where a fold may begin: at a snapshot, at the first record, or where the whole tree was replaced.

What the archive lacks is never passed over: a hole behind the beginning means that the content
can't be known.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packhorse.blobs.api import BlobStore
from packhorse.bookkeeping.positions import LoadedSnapshot
from packhorse.content.node import ROOT
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.snapshots.store import all_of
from packhorse.wire.actions import exports
from packhorse.wire.package_codec import decode_entry
from packhorse.wire.record import Undecodable
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.bases import (
    AddedSubscription,
    began,
    leaves_out,
    serves,
    suits_added,
)
from packhorse_services.pipeline.history.headers import PackageHeaders, headers_between
from packhorse_services.pipeline.history.numbers import numbers_of
from packhorse_services.pipeline.history.packages import agent_of, is_for, package_files
from packhorse_services.pipeline.history.read import gaps
from packhorse_services.pipeline.history.target import HistoryTarget
from packhorse_services.pipeline.storage.location import Location


@dataclass(frozen=True, slots=True)
class Beginning:
    """The packages above `after` are to be folded onto the snapshot `base`, or onto nothing."""

    after: int
    base: ContentSnapshot | None = None
    left_out: str = ""
    """Which packages up to the target do not count, as in a `ContentSnapshot`."""
    whole_after: int = -1
    """Above which offset the archive lacks nothing, up to the target; `after` is not below it."""

    @property
    def numbered_after(self) -> int:
        """Up to which offset the base knows the numbers of producers; above it the archive does."""
        return self.base.offset if self.base else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRules:
    """Which snapshots a fold may begin with.

    One for everybody or for `subscriber`, that lacks the packages of `left_out` and no others, and
    is not above `below`. With `start` it is this one, or is for the same and lacks just what this
    one lacks. It need not have the agents of `added`, whose packages then count from where each
    subscription began. Above `start` a package that names one of `subscriber` and whom the base is
    for names both.
    """

    subscriber: str = ""
    left_out: Collection[int] = ()
    below: int | None = None
    start: LoadedSnapshot | None = None
    added: Mapping[str, AddedSubscription] = field(default_factory=dict)

    def last(self, target: HistoryTarget) -> int:
        """Return the highest offset that a fold to `target` may begin with."""
        return target.offset if self.below is None else min(self.below, target.offset)


def beginning(
    blobs: BlobStore,
    target: HistoryTarget,
    rules: BaseRules,
    headers: PackageHeaders,
) -> Beginning:
    """Return where the fold that ends at `target` begins, with the newest base there is.

    A base is a snapshot by the rules, of the target's agents as far as they had begun, that the
    archive continues without a hole. `headers` are those of the target's journal and version.
    Raises `TaskRefused` when there is no beginning.
    """
    firsts = headers.firsts if target.firsts is None else target.firsts
    holes = _holes(headers.location, target, firsts.values())
    unknown = max((end - 1 for _, end in holes), default=-1)
    base = _base(list(all_of(blobs)), firsts, headers, target, rules, unknown)
    if base is not None:
        return Beginning(base.offset, base, whole_after=unknown)
    start, added = rules.start, rules.added
    if not holes and start is None:
        return Beginning(-1)
    behind = unknown if start is None else max(unknown, start.offset)
    if any(subscription.started < unknown for subscription in added.values()):
        raise TaskRefused(_lacking(holes, target, start))
    held = replace(target, agents=tuple(set(target.agents) - added.keys()))
    replaced = _last_replacement(headers.location, held, behind, rules)
    if replaced is None:
        raise TaskRefused(_lacking(holes, target, start))
    return Beginning(replaced - 1, whole_after=unknown)


def _base(
    snapshots: Sequence[ContentSnapshot],
    firsts: Mapping[str | None, int],
    headers: PackageHeaders,
    target: HistoryTarget,
    rules: BaseRules,
    unknown: int,
) -> ContentSnapshot | None:
    """Return the first of `snapshots` that is a base, and not below what is `unknown`."""
    if not snapshots:
        return None
    of_agents = {agent: offset for agent, offset in firsts.items() if agent is not None}
    begun = began(of_agents, snapshots, target.journal_id)
    last = rules.last(target)
    start, added = rules.start, rules.added
    for base in snapshots:
        if (
            base.journal_id == target.journal_id
            and unknown <= base.offset <= last
            and serves(base, _of_base(base, target, added), begun)
            and _names_alike(base, headers, rules)
            and leaves_out(base, rules.subscriber, _absent(base, rules.left_out, added), start)
            and suits_added(base, added, begun, unknown=unknown, start=start)
            and headers.has(base)
        ):
            return base
    return None


def _names_alike(base: ContentSnapshot, headers: PackageHeaders, rules: BaseRules) -> bool:
    """Return whether a base has of the packages that name subscribers those that are wanted.

    Up to the offset of `rules.start` those of its agents count that are in it, whomever they name.
    """
    start = rules.start
    for agent in base.publisher_agents:
        after = start.offset if start is not None and agent in start.agents else -1
        alone = headers.named_alone(base.subscriber, rules.subscriber, [agent])
        if any(after < offset <= base.offset for offset in alone):
            return False
    return True


def _of_base(
    base: ContentSnapshot, target: HistoryTarget, added: Mapping[str, AddedSubscription]
) -> set[str]:
    """Return the agents that a base must hold, or who began behind it."""
    return set(target.agents) - (added.keys() - set(base.publisher_agents))


def _absent(
    base: ContentSnapshot, left_out: Collection[int], added: Mapping[str, AddedSubscription]
) -> set[int]:
    """Return the offsets that count as left out of a base: not those of an agent it has not."""
    others = [
        subscription.removed
        for agent, subscription in added.items()
        if agent not in base.publisher_agents
    ]
    return set(left_out).difference(*others)


def _lacking(
    holes: list[tuple[int, int]], target: HistoryTarget, start: LoadedSnapshot | None
) -> str:
    """Return why the content is not known."""
    if start is not None:
        return (
            f"it began with snapshot {start.id} at {start.offset}, which leaves packages out, and "
            "the archive no longer continues that one; load a newer snapshot there"
        )
    first, end = holes[-1]
    return (
        f"the archive lacks offsets {first} to {end - 1} of the package topic, so the content "
        f"at {target.offset} is not known; make a snapshot of a later state once everything "
        "was distributed again: packhorse distribute --deep /"
    )


def _holes(
    location: Location, target: HistoryTarget, firsts: Collection[int]
) -> list[tuple[int, int]]:
    """Return what is missing up to the target, in order: first offset and the one behind."""
    known = gaps(location, target.journal_id)
    holes = [hole for hole in known if hole[0] <= target.offset]
    if first := min(firsts, default=0):
        holes.append((0, first))
    return sorted(holes, key=lambda hole: hole[1])


def _last_replacement(
    location: Location, target: HistoryTarget, unknown: int, rules: BaseRules
) -> int | None:
    """Return the offset of the last package by the rules that replaced the whole tree, if any.

    One that is left out has replaced nothing, nor has one that repeats a producer's number (R27).
    """
    last = rules.last(target)
    spans = dict.fromkeys(target.agents, (-1, last))
    absent = numbers_of(location, target.version, target.journal_id, spans).repeats
    absent = absent.union(rules.left_out)
    files = package_files(location, target.version)
    found = headers_between(location, files, target.journal_id, unknown + 1, last)
    replacing = (
        offset
        for offset, headers in found
        if agent_of(headers) in target.agents
        and offset not in absent
        and replaces_all(headers)
        and is_for(headers, rules.subscriber)
    )
    return max(replacing, default=None)


def replaces_all(headers: dict[str, bytes]) -> bool:
    """Return whether nothing of what lay before a package is left after it."""
    try:
        entry = decode_entry(headers)
    except Undecodable:
        return False
    whole = exports(entry.action) and ROOT in entry.deep_paths
    return whole and not (entry.range_from or entry.range_to)
