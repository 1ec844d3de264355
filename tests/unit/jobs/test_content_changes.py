"""What packages do to content, as events say it."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from packhorse.jobs.content_changes.change import (
    MOST_PATHS,
    ChangeKind,
    ContentChange,
    PackageChanges,
    WatchedRoots,
)
from packhorse.jobs.names import MAX_PROPERTIES, require_properties
from packhorse.wire.messages import Action, PackageEntry


def entry(action: Action, *paths: str, deep: Sequence[str] = ()) -> PackageEntry:
    return PackageEntry("dstrpck-1", "main", action, paths, tuple(deep), "ann")


def kinds(changes: Sequence[ContentChange]) -> list[tuple[str, list[str], list[str]]]:
    return [(str(one.kind), list(one.paths), list(one.deep_paths)) for one in changes]


def test_a_node_is_added_once_and_changed_after_that() -> None:
    changes = PackageChanges({"/old": "page"}, {"subscriber": "sub"})
    first = list(changes.of(entry(Action.ADD, "/old", "/new")))
    assert kinds(first) == [("added", ["/new"], []), ("changed", ["/old"], [])]
    assert first[0].properties == {
        "subscriber": "sub",
        "package_id": "dstrpck-1",
        "publisher_agent": "main",
        "user": "ann",
        "paths": ["/new"],
        "deep_paths": [],
    }
    assert kinds(list(changes.of(entry(Action.ADD, "/new")))) == [("changed", ["/new"], [])]


def test_what_was_removed_with_a_subtree_is_added_again() -> None:
    changes = PackageChanges({"/a/b": "page", "/ab": "page"}, {})
    assert kinds(list(changes.of(entry(Action.DELETE, "/a")))) == [("removed", [], ["/a"])]
    again = list(changes.of(entry(Action.ADD, "/a/b", "/ab")))
    assert kinds(again) == [("added", ["/a/b"], []), ("changed", ["/ab"], [])]


def test_a_deep_path_an_invalidation_and_a_test() -> None:
    changes = PackageChanges({}, {})
    assert kinds(list(changes.of(entry(Action.ADD, deep=["/site"])))) == [("added", [], ["/site"])]
    assert kinds(list(changes.of(entry(Action.INVALIDATE, "/site")))) == [
        ("invalidated", [], ["/site"])
    ]
    assert list(changes.of(entry(Action.TEST))) == []


def test_only_what_is_below_a_root_is_reported_of() -> None:
    change = ContentChange(ChangeKind.CHANGED, ["/site", "/site/a", "/sites"], ["/", "/other"])
    below = change.below(WatchedRoots(["/site"]))
    assert (below.paths, below.deep_paths) == (["/site", "/site/a"], ["/"])


@given(
    st.lists(st.text('ab"\\ü', min_size=1, max_size=680).map(lambda t: "/" + t), max_size=300),
    st.lists(st.just("/deep"), max_size=201),
)
def test_the_parts_of_a_large_change_are_small_and_lose_nothing(
    paths: list[str], deep: list[str]
) -> None:
    parts = list(ContentChange(ChangeKind.ADDED, paths, deep).in_parts())
    assert [path for part in parts for path in part.paths] == paths
    assert [path for part in parts for path in part.deep_paths] == deep
    assert all(len(part.paths) + len(part.deep_paths) <= MOST_PATHS for part in parts)
    for part in parts:
        require_properties(part.properties)
    assert MAX_PROPERTIES == 64 * 1024
