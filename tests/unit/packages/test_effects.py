"""What a package does to a tree, without a tree: what is admitted, what a filter leaves of it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.content.parts import SubtreePart
from packhorse.packages.body import pack
from packhorse.packages.effects import (
    Effect,
    PartialRemoval,
    Replacement,
    SubtreeRemoval,
    admit,
    effects,
    filtered,
)
from packhorse.packages.limits import LIMITS, PackageRefused
from packhorse.packages.path_filter import PathFilter
from packhorse.packages.scope import type_of
from packhorse.wire.messages import Action, PackageEntry, PackageMessage

MAPPED = PathFilter(("/site",), ("/site/private",), (("/site/a", "/own"),))


def replacement(part: SubtreePart, *paths: str) -> Replacement:
    return Replacement(part, iter([Node(path, "page") for path in paths]))


def left(path_filter: PathFilter, *found: Effect) -> list[tuple[str, ...]]:
    """Return what is removed and what is written, as words."""
    return [words for effect in filtered(found, path_filter) for words in said(effect)]


def said(effect: Effect | PartialRemoval) -> Iterable[tuple[str, ...]]:
    if isinstance(effect, Node):
        yield "write", effect.path
    elif isinstance(effect, SubtreeRemoval):
        yield "remove", effect.path
    elif isinstance(effect, Replacement):
        yield "replace", effect.part.top, *[node.path for node in effect.nodes]
    else:
        yield "remove parts", *[part.top for part in effect.parts]


def test_r35_what_is_taken_whole_is_removed_and_replaced_at_own_paths() -> None:
    assert left(MAPPED, SubtreeRemoval("/site/a/b")) == [("remove", "/own/b")]
    part = SubtreePart.whole("/site/a")
    assert left(MAPPED, replacement(part, "/site/a", "/site/a/b")) == [
        ("replace", "/own", "/own", "/own/b")
    ]


def test_r35_of_what_is_taken_in_part_nodes_are_written_at_own_paths() -> None:
    part = SubtreePart.whole("/site")
    nodes = ("/site", "/site/a", "/site/a/b", "/site/private/c", "/site/z")
    *removals, top, mapped, below, last = left(MAPPED, replacement(part, *nodes))
    assert {words[0] for words in removals} == {"remove parts"}
    assert [top, mapped, below, last] == [
        *(("write", "/site"), ("write", "/own"), ("write", "/own/b"), ("write", "/site/z"))
    ]


def test_r35_a_range_removes_nothing_beside_it() -> None:
    part = SubtreePart.between("/site", "/site/k", "/site/m")
    (only,) = filtered([replacement(part)], MAPPED)
    assert isinstance(only, Replacement)
    assert (only.part.low, only.part.high) == (part.low, part.high)


@pytest.mark.parametrize("targets", [(), ("sub",)])
def test_r35_a_package_for_named_subscribers_has_its_own_type(targets: tuple[str, ...]) -> None:
    entry = PackageEntry("id", "main", Action.DELETE, ("/a",), targets=targets)
    assert admit(PackageMessage(entry, package_type=type_of(entry))).shallow == ["/a"]
    other = PackageMessage(PackageEntry("id", "main", Action.DELETE, ("/a",)))
    with pytest.raises(PackageRefused, match="unknown package type"):
        admit(PackageMessage(entry, package_type="packhorse/x"))
    if targets:
        with pytest.raises(PackageRefused, match="targets exactly when"):
            admit(PackageMessage(entry, package_type=other.package_type))


@pytest.mark.parametrize("range_from", ["", "/a/b"])
def test_r30_limits_hold_and_reading_is_heard_of_for_a_part_as_for_a_subtree(
    tmp_path: Path, range_from: str
) -> None:
    nodes, blobs = [Node("/a/b", "page"), Node("/a/c", "page")], open_blobs(str(tmp_path))
    nodes = nodes if range_from else [Node("/a", "page"), *nodes]
    entry = PackageEntry("id", "main", Action.ADD, deep_paths=("/a",), range_from=range_from)
    body = pack(iter(nodes), "id", blobs).body
    package = PackageMessage(entry, body, package_type=type_of(entry))
    read: list[str] = []

    def reading(given: Iterator[Node]) -> Iterator[Node]:
        for node in given:
            read.append(node.path)
            yield node

    found = [[*said(effect)] for effect in effects(package, blobs, reading=reading)]
    assert found == [[("replace", "/a", *read)]]
    assert read == [node.path for node in nodes]
    small = replace(LIMITS, content_bytes=body.content_length - 1)
    with pytest.raises(PackageRefused, match="PACKHORSE_MAX_PACKAGE_BYTES"):
        [[*said(effect)] for effect in effects(package, blobs, limits=small)]
