"""Two packages overlap exactly when some path's state is in both (R6)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.content.node import is_within
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.publisher.overlap import Footprint

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
