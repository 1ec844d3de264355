"""A part of a subtree holds what lies in its range, by bytes, and nothing beside the subtree."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.content.node import InvalidPath, is_within
from packhorse.content.parts import SubtreePart

SEGMENTS = ["a", "b", "a-b", "a0", "!", "é", "\ufffd", "\U0001f40e"]
path = st.lists(st.sampled_from(SEGMENTS), max_size=3).map(lambda names: "/" + "/".join(names))


@given(top=path, first=st.just("") | path, end=st.just("") | path, requested=path)
def test_a_part_is_what_its_words_say(top: str, first: str, end: str, requested: str) -> None:
    bounds = [bound for bound in (first, end) if bound]
    empty = bool(end) and (first or top).encode() >= end.encode()
    if empty or not all(is_within(bound, top) for bound in bounds):
        with pytest.raises(InvalidPath):
            SubtreePart.between(top, first, end)
        return
    part = SubtreePart.between(top, first, end)
    in_range = first.encode() <= requested.encode() and (
        not end or requested.encode() < end.encode()
    )
    if requested != "/":  # which is no node
        assert part.holds(requested) is (is_within(requested, top) and in_range)
    assert part.is_whole is (not end and first in (("", "/") if top == "/" else ("", top)))


@given(top=path, bounds=st.sets(path, max_size=5), requested=path.filter(lambda path: path != "/"))
def test_parts_that_follow_each_other_hold_each_path_once(
    top: str, bounds: set[str], requested: str
) -> None:
    cuts = ["", *sorted(bound for bound in bounds if is_within(bound, top) and bound != top), ""]
    parts = [SubtreePart.between(top, first, end) for first, end in itertools.pairwise(cuts)]
    assert sum(part.holds(requested) for part in parts) == is_within(requested, top)


def test_a_sibling_that_sorts_into_the_range_is_not_in_it() -> None:
    part = SubtreePart.between("/content/huge", "", "/content/huge/x")
    assert "/content/huge" < "/content/huge-2" < "/content/huge/x"
    assert not part.holds("/content/huge-2")
    assert part.holds("/content/huge")
    assert part.holds("/content/huge/a")
    assert not part.holds("/content/huge/x")


@pytest.mark.parametrize(
    ("first", "end"),
    [
        ("/b", ""),
        ("", "/ab"),
        ("/a/x", "/a/x"),
        ("/a/y", "/a/x"),
        ("", "/a"),
        ("/a", "/a"),
        ("/a/../b", ""),
        ("", "/a/"),
    ],
)
def test_a_range_that_holds_nothing_or_lies_outside_is_none(first: str, end: str) -> None:
    with pytest.raises(InvalidPath):
        SubtreePart.between("/a", first, end)
