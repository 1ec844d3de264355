"""Cutting a subtree into parts, and the condition that picks the nodes of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.content.parts import SubtreePart
from packhorse.content.scan import condition
from packhorse_services.pipeline.bulk.snapshot import PlannedPart, cut

TOP = "/top"

subtrees = st.lists(
    st.tuples(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/."), min_size=1
        ),
        st.integers(0, 50),
    ),
    max_size=30,
    unique_by=lambda node: node[0],
).map(lambda below: [(TOP, 5), *sorted((f"{TOP}/{name}", size) for name, size in below)])


@given(sizes=subtrees, part_nodes=st.integers(1, 8), part_bytes=st.integers(1, 120))
def test_every_node_is_in_exactly_one_part_and_none_is_too_large(
    sizes: list[tuple[str, int]], part_nodes: int, part_bytes: int
) -> None:
    parts = list(cut(iter(sizes), part_nodes=part_nodes, part_bytes=part_bytes))
    assert [part.number for part in parts] == list(range(len(parts)))
    for part in parts:
        held = [(path, size) for path, size in sizes if part.within(TOP).holds(path)]
        assert len(held) == part.nodes <= part_nodes
        assert len(held) == 1 or sum(size for _, size in held) <= part_bytes
    assert sum(part.nodes for part in parts) == len(sizes)


def test_the_first_range_and_the_last_one_are_open() -> None:
    sizes = [(TOP, 1), (f"{TOP}/a", 1), (f"{TOP}/b", 1)]
    assert list(cut(sizes, part_nodes=2, part_bytes=100)) == [
        PlannedPart(0, "", f"{TOP}/b", 2),
        PlannedPart(1, f"{TOP}/b", "", 1),
    ]


def test_a_part_is_full_by_bytes_too_and_a_larger_node_has_its_own() -> None:
    sizes = [(TOP, 60), (f"{TOP}/a", 500), (f"{TOP}/b", 40), (f"{TOP}/c", 60), (f"{TOP}/d", 1)]
    parts = cut(sizes, part_nodes=100, part_bytes=100)
    assert [part.nodes for part in parts] == [1, 1, 2, 1]


def test_nothing_has_no_parts() -> None:
    assert list(cut([], part_nodes=1, part_bytes=1)) == []


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (SubtreePart.whole("/a"), "path = '/a' OR (path >= '/a/' AND path < '/a0')"),
        (SubtreePart.whole("/"), "path >= '/' AND path < '0'"),
        (SubtreePart.between("/a", "/a/it's", ""), "path >= '/a/it''s' AND path < '/a0'"),
        (SubtreePart.between("/a", "/a/b\\", "/a/c"), "path >=  E'/a/b\\\\' AND path < '/a/c'"),
    ],
)
def test_the_condition_of_a_part(part: SubtreePart, text: str) -> None:
    assert condition(part).as_string() == text
