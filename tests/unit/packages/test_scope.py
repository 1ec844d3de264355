"""What a package declares: prefixes match on segment boundaries, overlaps count once."""

from hypothesis import given
from hypothesis import strategies as st

from packhorse.content.node import is_within
from packhorse.packages.scope import PathScope, covering, first_outside

path = st.lists(st.sampled_from(["a", "b", "ab", "a!", "0"]), max_size=4).map(
    lambda names: "/" + "/".join(names)
)


@given(paths=st.lists(path, max_size=8))
def test_covering_paths_hold_all_and_lie_in_no_other(paths: list[str]) -> None:
    kept = covering(paths)
    assert all(any(is_within(path, root) for root in kept) for path in paths)
    assert not [p for p in kept for q in kept if p != q and is_within(p, q)]
    assert set(kept) <= set(paths)


@given(shallow=st.lists(path), deep=st.lists(path), requested=st.lists(path, max_size=10))
def test_a_scope_knows_where_a_node_belongs(
    shallow: list[str], deep: list[str], requested: list[str]
) -> None:
    scope = PathScope(shallow, deep)
    for node in requested:
        holders = [root for root in scope.deep if is_within(node, root)]
        assert scope.deep_path_of(node) == (holders[0] if holders else None)
        if not holders:
            assert scope.allows_alone(node) == (node in shallow)


def test_roots_end_at_segments() -> None:
    assert first_outside(["/content/a", "/content-secret"], ["/content"]) == "/content-secret"
    assert first_outside(["/content", "/content/x/y"], ["/content"]) is None
    assert first_outside(["/anything"], ["/"]) is None
    assert first_outside(["/a"], []) == "/a"
