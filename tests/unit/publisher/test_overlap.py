"""Two packages overlap exactly when some path's state is in both (R6)."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.content.node import is_within
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.publisher.publish.overlap import Footprint

SEGMENTS = st.lists(st.sampled_from(["a", "b", "a-b", "a0"]), max_size=3)
PATHS = SEGMENTS.map(lambda segments: "/" + "/".join(segments))
ENTRIES = st.builds(
    lambda action, paths, deep: entry(action, *paths, deep=deep),
    st.sampled_from(Action),
    st.lists(PATHS, max_size=3),
    st.lists(PATHS, max_size=2),
)


def entry(action: Action, *paths: str, deep: Sequence[str] = ()) -> PackageEntry:
    return PackageEntry("id", "main", action, paths, tuple(deep))


def part(deep: str, first: str, end: str) -> PackageEntry:
    made = entry(Action.ADD, deep=[deep])
    return replace(made, range_from=first, range_to=end)


def is_part(made: PackageEntry) -> bool:
    [deep], first, end = made.deep_paths, made.range_from, made.range_to
    inside = all(is_within(bound, deep) for bound in (first, end) if bound)
    return inside and bool(first or end) and not (end and (first or deep) >= end)


BOUNDS = st.just("") | PATHS
PARTS = st.builds(part, PATHS, BOUNDS, BOUNDS).filter(is_part)
EVERY_PATH = [
    "/" + "/".join(segments)
    for depth in range(1, 5)
    for segments in itertools.product(["a", "b", "a-b", "a0"], repeat=depth)
]
EVERY_PATH += ["/", *(f"{path}/!" for path in ["", *EVERY_PATH])]
"""`!` sorts before all other segments, so it is in a run that no other path is in."""


def paths_of(one: PackageEntry) -> set[str]:
    """Return which of all paths a package carries the state of, one by one."""
    nodes, trees = carries(one)
    first, end = one.range_from.encode(), one.range_to.encode()
    return {
        path
        for path in EVERY_PATH
        if path in nodes
        or (
            any(is_within(path, top) for top in trees)
            and first <= path.encode()
            and (not end or path.encode() < end)
        )
    }


@given(PARTS, ENTRIES | PARTS)
def test_r6_a_part_overlaps_exactly_what_has_a_path_of_its_range(
    one: PackageEntry, other: PackageEntry
) -> None:
    expected = bool(paths_of(one) & paths_of(other))
    assert Footprint(one).overlaps(Footprint(other)) is expected
    assert Footprint(other).overlaps(Footprint(one)) is expected


@given(PARTS, ENTRIES | PARTS)
def test_r6_what_a_package_shares_with_a_subtree_says_which_of_its_parts_it_overlaps(
    one: PackageEntry, other: PackageEntry
) -> None:
    subtree = Footprint(entry(Action.ADD, deep=one.deep_paths))
    shared = Footprint(other).shared_with(subtree)
    assert Footprint(one).overlaps_any(*shared) is bool(paths_of(one) & paths_of(other))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (part("/a", "", "/a/m"), part("/a", "/a/m", ""), False),
        (part("/a", "", "/a/m"), part("/a", "/a/l", ""), True),
        (part("/a", "/a/b", ""), entry(Action.ADD, "/a"), False),
        (part("/a", "", "/a/b"), entry(Action.ADD, "/a"), True),
        (part("/a", "", "/a/b"), entry(Action.ADD, "/a-b"), False),
        (part("/a", "", "/a/m"), entry(Action.ADD, "/a/m", "/a/l/x"), True),
        (part("/a", "", "/a/m"), entry(Action.ADD, "/a/m", "/a/n/x"), False),
        (part("/a", "/a/m/x", ""), entry(Action.ADD, deep=["/a/m"]), True),
        (part("/a", "/a/n", ""), entry(Action.ADD, deep=["/a/m"]), False),
        (part("/a", "/a/n", ""), entry(Action.DELETE, "/a"), True),
        (part("/a", "/a/n", ""), entry(Action.DELETE, "/a/m"), False),
        (part("/a", "/a/n", ""), entry(Action.INVALIDATE, "/a/n"), False),
    ],
)
def test_r6_overlap_of_parts_by_example(
    first: PackageEntry, second: PackageEntry, expected: bool
) -> None:
    assert Footprint(first).overlaps(Footprint(second)) is expected
    assert Footprint(second).overlaps(Footprint(first)) is expected


def carries(one: PackageEntry) -> tuple[list[str], list[str]]:
    """Return the single nodes and the subtrees."""
    if one.action is Action.ADD:
        return list(one.paths), list(one.deep_paths)
    return ([], [*one.paths, *one.deep_paths]) if one.action is Action.DELETE else ([], [])


def overlap(first: PackageEntry, second: PackageEntry) -> bool:
    (nodes, trees), (other_nodes, other_trees) = carries(first), carries(second)
    return (
        any(node in other_nodes for node in nodes)
        or any(is_within(path, top) for path in [*nodes, *trees] for top in other_trees)
        or any(is_within(path, top) for path in [*other_nodes, *other_trees] for top in trees)
    )


@given(ENTRIES, ENTRIES)
def test_r6_overlap_is_what_the_words_say(first: PackageEntry, second: PackageEntry) -> None:
    expected = overlap(first, second)
    assert Footprint(first).overlaps(Footprint(second)) is expected
    assert Footprint(second).overlaps(Footprint(first)) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (entry(Action.ADD, deep=["/a"]), entry(Action.ADD, "/a/b/c"), True),
        (entry(Action.ADD, deep=["/a/b"]), entry(Action.DELETE, "/a"), True),
        (entry(Action.ADD, deep=["/a/b"]), entry(Action.ADD, "/a"), False),
        (entry(Action.ADD, deep=["/a"]), entry(Action.ADD, "/ab", "/a-b"), False),
        (entry(Action.ADD, deep=["/"]), entry(Action.ADD, "/z"), True),
        (entry(Action.ADD, deep=["/a"]), entry(Action.INVALIDATE, "/a"), False),
    ],
)
def test_r6_overlap_by_example(first: PackageEntry, second: PackageEntry, expected: bool) -> None:
    assert Footprint(first).overlaps(Footprint(second)) is expected
