"""Which nodes a subscriber takes, and what of a part of a subtree."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packhorse.content.node import Binary, InvalidNode, InvalidPath, Node, is_within
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


MAPPED = PathFilter(
    ("/a", "/b", "/a/b/a"),
    ("/a/b", "/b/a", "/a0/b", "/a-b/a"),
    (("/a", "/a0/b"), ("/a/b", "/a"), ("/a!", "/x"), ("/b", "/b"), ("/a/b/a/b", "/a-b/a")),
    ("title", "cq:*"),
)


@given(st.lists(paths, max_size=20, unique=True), tops, st.lists(paths, min_size=2, max_size=2))
def test_r35_what_is_mapped_has_one_place_and_its_parts_lie_there(
    every: list[str], top: str, bounds: list[str]
) -> None:
    taken = [path for path in every if MAPPED.holds(path)]
    assert len({MAPPED.own(path) for path in taken}) == len(taken)
    part, (low, high) = SubtreePart.whole(top), sorted(bounds)
    if top != "/" and is_within(low, top) and is_within(high, top) and top < low < high:
        part = SubtreePart.between(top, low, high)
    own = [region.own_part(one) for region in MAPPED.regions_at(top) for one in region.taken(part)]
    for path in taken:
        assert sum(one.holds(MAPPED.own(path)) for one in own) == part.holds(path)
        [region] = [one for one in MAPPED.regions if one.rules.holds(path)]
        assert region.theirs(region.own(path)) == path
    narrowed = MAPPED.narrowed(PackageEntry("id", "main", Action.DELETE, (), (top,)))
    for path in taken:
        held = any(is_within(MAPPED.own(path), one) for one in narrowed.deep_paths)
        assert held == is_within(path, top)


@pytest.mark.parametrize(
    ("mapped", "exclude", "reason"),
    [
        ((("/a", "/b"),), (), "the author's own '/b'"),
        ((("/a", "/b"), ("/b", "/c")), ("/c/x",), "the author's own '/c'"),
        ((("/a", "/c"), ("/b", "/c")), ("/c",), "two paths are mapped onto '/c'"),
        ((("/a", "/c"), ("/b", "/c/d")), ("/c",), "two paths are mapped onto '/c/d'"),
        ((("/a", "/c"), ("/a", "/d")), ("/c", "/d"), "mapped twice"),
        ((("/", "/c"),), ("/c",), "/ is not mapped"),
        ((("/a", "/"),), (), "/ is not mapped"),
        ((("/a", "b"),), (), "not absolute"),
    ],
)
def test_r35_two_nodes_never_come_to_one_place(
    mapped: tuple[tuple[str, str], ...], exclude: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(InvalidPath, match=reason):
        PathFilter((), exclude, mapped)


def test_r14_a_node_whose_own_path_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidPath, match="2048"):
        PathFilter((), ("/b",), (("/a", f"/b/{'b' * 2000}"),)).node(Node(f"/a/{'c' * 100}", "page"))


@pytest.mark.parametrize(
    ("properties", "left"),
    [
        ('{"title": "x", "text": "t"}', '{"text": "t"}'),
        (
            '{"a": 1.10, "cq:tags": [{"a": "}"}], "b": 1e400, "title": null}',
            '{"a": 1.10, "b": 1e400}',
        ),
        ('{"t\\u0069tle": 1, "b": "\\u00e9"}', '{"b": "\\u00e9"}'),
        ('{"a": ":", "title": {"title": 2}}', '{"a": ":"}'),
        ('{ "title" : 1 }', "{}"),
        ('{"a": {"title": 1}, "b": "\\"title\\":"}', '{"a": {"title": 1}, "b": "\\"title\\":"}'),
        ("{}", "{}"),
    ],
)
def test_r35_properties_are_left_out_and_the_others_stay_as_they_are(
    properties: str, left: str
) -> None:
    binaries = tuple(Binary(name, "0" * 64, 1, "x/y") for name in ("file", "title", "cq:x"))
    found = PathFilter(exclude_properties=("title", "cq:*")).node(
        Node("/a", "page", properties, binaries)
    )
    assert found == Node("/a", "page", left, binaries[:1])


@pytest.mark.parametrize("text", ['{"title": 1', '["title": 1]', '{"title": 1} x'])
def test_r14_properties_that_cant_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidNode):
        PathFilter(exclude_properties=("title",)).node(Node("/a", "page", text))


@pytest.mark.parametrize("name", ["", "*", "a*b", 'a"', "a\\", "a\n"])
def test_what_names_no_property_is_refused(name: str) -> None:
    with pytest.raises(InvalidPath):
        PathFilter(exclude_properties=(name,))


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(InvalidPath, match="included and excluded"):
        PathFilter(("/a",), ("/a",))
    with pytest.raises(InvalidPath):
        PathFilter(("a",))
    with pytest.raises(InvalidPath, match="together"):
        PathFilter(tuple(f"/{number:0>1000}" for number in range(MAX_FILTER_BYTES // 1000 + 1)))
