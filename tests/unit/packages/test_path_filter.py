"""Which nodes a subscriber takes, and what of a part of a subtree."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packhorse.content.node import InvalidPath, is_within
from packhorse.content.parts import SubtreePart
from packhorse.packages.path_filter import PathFilter
from packhorse.wire.messages import MAX_FILTER_BYTES, Action, PackageEntry

paths = st.lists(st.sampled_from(["a", "b", "a!", "a0", "a-b"]), min_size=1, max_size=3).map(
    lambda names: "/" + "/".join(names)
)
tops = st.just("/") | paths


@st.composite
def filters(draw: st.DrawFn) -> PathFilter:
    include = draw(st.lists(tops, max_size=4, unique=True))
    exclude = draw(st.lists(tops, max_size=4, unique=True))
    return PathFilter(tuple(include), tuple(path for path in exclude if path not in include))


@given(filters(), tops, st.lists(paths, max_size=20), st.lists(paths, min_size=2, max_size=2))
def test_r35_the_parts_of_a_subtree_hold_exactly_what_is_taken(
    path_filter: PathFilter, top: str, every: list[str], bounds: list[str]
) -> None:
    part, (low, high) = SubtreePart.whole(top), sorted(bounds)
    if top != "/" and is_within(low, top) and is_within(high, top) and top < low < high:
        part = SubtreePart.between(top, low, high)
    parts = path_filter.parts_of(part)
    for path in (*every, *path_filter.include, *path_filter.exclude, top):
        if path != "/":
            held = [one for one in parts if one.holds(path)]
            assert len(held) == (part.holds(path) and path_filter.holds(path)), path


@example(PathFilter(("/a", "/a/b/a"), ("/a/b",)), "/", "/a/b/a")
@given(filters(), tops, paths)
def test_r35_the_tops_below_a_path_have_all_that_is_taken_there(
    path_filter: PathFilter, top: str, path: str
) -> None:
    found = path_filter.tops(top)
    assert all(path_filter.holds(one) and is_within(one, top) for one in found)
    if is_within(path, top) and path_filter.holds(path):
        assert sum(is_within(path, one) for one in found) == 1


@pytest.mark.parametrize(
    ("action", "named", "deep", "reason"),
    [
        (Action.ADD, ("/a/x",), (), "PACKHORSE_EXCLUDE names /a/x"),
        (Action.ADD, ("/b",), (), "PACKHORSE_INCLUDE names nothing of it"),
        (Action.ADD, ("/b", "/a"), (), ""),
        (Action.ADD, (), ("/",), ""),
        (Action.ADD, ("/",), (), "PACKHORSE_INCLUDE names nothing of it"),
        (Action.DELETE, ("/",), (), ""),
        (Action.INVALIDATE, ("/a/x/y",), (), "PACKHORSE_EXCLUDE names /a/x"),
        (Action.TEST, ("/b",), (), ""),
        (Action.TEST, (), (), ""),
    ],
)
def test_r35_a_package_of_which_nothing_is_taken_is_left_out(
    action: Action, named: tuple[str, ...], deep: tuple[str, ...], reason: str
) -> None:
    path_filter = PathFilter(("/a",), ("/a/x",))
    assert path_filter.left_out(PackageEntry("id", "main", action, named, deep)) == reason


@pytest.mark.parametrize(
    ("low", "high", "reason"),
    [
        ("", "/a/x", ""),
        ("/a/x", "/a/x/m", ""),  # /a/x-y lies between these
        ("/a/x/b", "/a/x/m", "PACKHORSE_EXCLUDE names /a/x"),
        ("/a/x/b", "/a/y", ""),
        ("/a/x/b", "", ""),
    ],
)
def test_r35_a_part_of_a_subtree_of_which_nothing_is_taken_is_left_out(
    low: str, high: str, reason: str
) -> None:
    entry = PackageEntry("id", "main", Action.ADD, (), ("/a",), range_from=low, range_to=high)
    assert PathFilter(("/a",), ("/a/x",)).left_out(entry) == reason


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(InvalidPath, match="included and excluded"):
        PathFilter(("/a",), ("/a",))
    with pytest.raises(InvalidPath):
        PathFilter(("a",))
    with pytest.raises(InvalidPath, match="together"):
        PathFilter(tuple(f"/{number:0>1000}" for number in range(MAX_FILTER_BYTES // 1000 + 1)))
