"""Package to effects: what it does to a tree, checked, for an import as for the archive's history.

The effects of one package do not overlap, so that its removals may all come before its writes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from packhorse.blobs.api import BlobStore
from packhorse.content.node import ROOT, Node
from packhorse.content.parts import SubtreePart
from packhorse.packages.body import unpack
from packhorse.packages.limits import (
    LIMITS,
    PACKAGE_TYPE,
    PART_TYPE,
    TARGETED_TYPE,
    PackageLimits,
    PackageRefused,
)
from packhorse.packages.path_filter import PathFilter
from packhorse.packages.scope import PathScope, first_outside, part_of, type_of
from packhorse.wire.actions import exports, is_probe, removes
from packhorse.wire.messages import PackageMessage


@dataclass(frozen=True, slots=True)
class SubtreeRemoval:
    """A path goes, with its subtree."""

    path: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """A part of a subtree becomes exactly `nodes`, which are read while they are taken."""

    part: SubtreePart
    nodes: Iterator[Node]


@dataclass(frozen=True, slots=True)
class PartialRemoval:
    """Of a subtree goes what a filter takes; the rest stays, with the folders above it."""

    parts: Sequence[SubtreePart]


Effect = SubtreeRemoval | Replacement | Node
"""A node stands for its being written, and the folders above it that are missing with it."""


def admit(package: PackageMessage, roots: Sequence[str] = (ROOT,)) -> PathScope:
    """Return what a package declares. Raises `PackageRefused` or `InvalidPath`."""
    entry = package.entry
    _check_type(package)
    if (package.body is not None) != exports(entry.action):
        raise PackageRefused(f"{entry.action.value} comes with a body, or ADD without one")
    scope = PathScope(entry.paths, entry.deep_paths)
    if removes(entry.action) and ROOT in (*scope.shallow, *scope.deep):
        raise PackageRefused("a DELETE of / would remove all content; no publisher sends one")
    outside = first_outside((*scope.shallow, *scope.deep), roots)
    if outside is not None:
        raise PackageRefused(f"{outside!r} is outside the import roots of this subscriber")
    return scope


def effects(
    package: PackageMessage,
    blobs: BlobStore,
    *,
    roots: Sequence[str] = (ROOT,),
    limits: PackageLimits = LIMITS,
    reading: Callable[[Iterator[Node]], Iterator[Node]] = iter,
) -> Iterator[Effect]:
    """Yield what a package does to the tree; TEST and INVALIDATE do nothing. Memory is constant.

    The nodes of a replacement are to be taken before the next effect is asked for. Those of the
    body come through `reading`.

    Raises:
        PackageRefused: type, action, paths or nodes are not what these roots and limits allow.
        PackageCorrupt, BlobCorrupt, Undecodable, InvalidPath, InvalidNode: the body is bad.
        BlobMissing, BlobStoreUnavailable: the body can't be had now.
    """
    if is_probe(package.entry.action):
        return
    scope = admit(package, roots)
    part = part_of(package.entry)
    if part is not None:
        yield Replacement(part, _all_of(part, reading(unpack(package, blobs, limits))))
    elif exports(package.entry.action):
        yield from _writes(reading(unpack(package, blobs, limits)), scope)
    elif removes(package.entry.action):
        yield from map(SubtreeRemoval, (*scope.shallow, *scope.deep))


def filtered(found: Iterable[Effect], path_filter: PathFilter) -> Iterator[Effect | PartialRemoval]:
    """Yield what of the effects is about nodes that the filter takes, by own paths (R35)."""
    holds, node, all_of_it = path_filter.holds, path_filter.node, path_filter.holds_all
    for effect in found:
        if isinstance(effect, Node):
            if all_of_it or holds(effect.path):
                yield node(effect)
            continue
        part, nodes = _reach(effect)
        found_in = ((region, region.taken(part)) for region in path_filter.regions_at(part.top))
        taken = [(region, parts) for region, parts in found_in if parts]
        if len(taken) == 1 and taken[0][1] == (part,):
            whole = taken[0][0].own_part(part)
            is_removal = isinstance(effect, SubtreeRemoval)
            yield SubtreeRemoval(whole.top) if is_removal else Replacement(whole, map(node, nodes))
            continue
        yield from (PartialRemoval([*map(one.own_part, parts)]) for one, parts in taken)
        # All nodes are read: what is left out is checked too.
        yield from (node(one) for one in nodes if holds(one.path))


def _reach(effect: SubtreeRemoval | Replacement) -> tuple[SubtreePart, Iterator[Node]]:
    """Return the part of a subtree that is removed, and what is written there."""
    if isinstance(effect, SubtreeRemoval):
        return SubtreePart.whole(effect.path), iter(())
    return effect.part, effect.nodes


def _writes(nodes: Iterator[Node], scope: PathScope) -> Iterator[Effect]:
    if not scope.deep:
        yield from _alone(nodes, scope)
        return
    seen: set[str] = set()
    for deep, run in groupby(nodes, lambda node: scope.deep_path_of(node.path)):
        if deep is None:
            yield from _alone(run, scope)
        elif deep in seen:
            raise PackageRefused(f"the nodes of deep path {deep!r} are not together")
        else:
            seen.add(deep)
            yield Replacement(SubtreePart.whole(deep), _beginning_with(deep, run))
    if len(seen) != len(scope.deep):
        raise PackageRefused("the package holds no nodes of one of its deep paths")


def _alone(nodes: Iterable[Node], scope: PathScope) -> Iterator[Node]:
    for node in nodes:
        if not scope.allows_alone(node.path):
            raise PackageRefused(f"{node.path!r} is in the package but not in its paths")
        yield node


def _check_type(package: PackageMessage) -> None:
    if package.package_type not in (PACKAGE_TYPE, PART_TYPE, TARGETED_TYPE):
        raise PackageRefused(f"unknown package type {package.package_type[:80]!r}; upgrade")
    if package.package_type != type_of(package.entry):
        raise PackageRefused(
            f"a package has a range exactly when its type is {PART_TYPE}, "
            f"and targets exactly when it is {TARGETED_TYPE}"
        )


def _all_of(part: SubtreePart, nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        if not part.holds(node.path):
            raise PackageRefused(f"{node.path!r} is in the package but not in its range")
        yield node


def _beginning_with(deep: str, nodes: Iterable[Node]) -> Iterator[Node]:
    for number, node in enumerate(nodes):
        if number == 0 and deep not in (ROOT, node.path):
            raise PackageRefused(f"the nodes of deep path {deep!r} do not begin with its own")
        yield node
