"""Which locks subscriptions take.

Enough that no two break each other's tree, and never too many.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import Connection

from packhorse.blobs.open import open_blobs
from packhorse.content.node import is_within
from packhorse.packages.path_filter import PathFilter
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse_services.subscriber.importing.importer import Importer
from packhorse_services.subscriber.importing.path_locks import MAX_LOCKS, lock, path_locks

SEGMENTS = st.lists(st.sampled_from("abc"), max_size=4)
PATHS = SEGMENTS.map(lambda segments: "/" + "/".join(segments))


def package(action: Action, *paths: str, deep: Sequence[str] = ()) -> PackageMessage:
    return PackageMessage(PackageEntry("id", "main", action, paths, tuple(deep)))


def write(*paths: str) -> PackageMessage:
    return package(Action.ADD, *paths)


def remove(*paths: str) -> PackageMessage:
    return package(Action.DELETE, *paths)


CHANGES = st.lists(
    st.one_of(
        st.builds(write, PATHS),
        st.builds(remove, PATHS),
        st.builds(lambda path: package(Action.ADD, deep=[path]), PATHS),
    ),
    max_size=6,
)


def collide(first: dict[int, bool], second: dict[int, bool]) -> bool:
    """Return whether one of them waits for the other, as Postgres decides it."""
    return any(first[key] or second[key] for key in first.keys() & second.keys())


def in_the_way(remover: Sequence[PackageMessage], other: Sequence[PackageMessage]) -> bool:
    """Return whether `other` changes something at or below what `remover` removes."""
    removed = [
        path
        for one in remover
        for path in (
            *one.entry.deep_paths,
            *(one.entry.paths if one.entry.action is Action.DELETE else ()),
        )
    ]
    changed = [path for one in other for path in (*one.entry.paths, *one.entry.deep_paths)]
    return any(is_within(path, top) for top in removed for path in changed)


@given(CHANGES, CHANGES, st.integers(1, 12), st.integers(1, 12))
def test_r8_who_removes_never_meets_who_changes_something_below(
    first: list[PackageMessage], second: list[PackageMessage], bound: int, other_bound: int
) -> None:
    locks, others = path_locks(first, bound=bound), path_locks(second, bound=other_bound)
    assert len(locks) <= bound
    assert list(locks) == sorted(locks)
    if in_the_way(first, second) or in_the_way(second, first):
        assert collide(locks, others)


@given(CHANGES, CHANGES)
def test_subscriptions_that_do_not_meet_do_not_wait(
    first: list[PackageMessage], second: list[PackageMessage]
) -> None:
    met = in_the_way(first, second) or in_the_way(second, first)
    assert collide(path_locks(first), path_locks(second)) == met


def test_nothing_is_locked_for_what_changes_nothing() -> None:
    assert path_locks([package(Action.INVALIDATE, "/a"), package(Action.TEST)]) == {}


class Asked:
    """Stands for a connection that is asked for locks."""

    locks: dict[int, bool]

    def execute(self, _statement: str, wanted: tuple[list[int], list[bool]]) -> None:
        self.locks = dict(zip(*wanted, strict=True))


def test_r35_what_is_mapped_is_locked_where_it_lies_here(tmp_path: Path) -> None:
    mapped = PathFilter(("/a", "/b"), (), (("/a", "/own/a"), ("/b", "/own/b")))
    importer = Importer("sub", open_blobs(str(tmp_path)), path_filter=mapped)
    asked = Asked()
    packages = [write("/a/x"), package(Action.ADD, deep=["/b/y"])]
    lock(cast("Connection[Any]", asked), packages, importer._touches)
    assert asked.locks == path_locks([write("/own/a/x"), remove("/own/b/y")])


def test_writers_below_one_folder_do_not_wait_for_each_other() -> None:
    assert not collide(path_locks([write("/a/b", "/a")]), path_locks([write("/a/c", "/a")]))


def test_many_pages_are_locked_by_the_folders_that_they_are_in() -> None:
    pages = write(*(f"/content/bulk/{n % 20}/page{n}" for n in range(1_000)))
    locks = path_locks([pages])
    assert len(locks) <= MAX_LOCKS
    assert collide(locks, path_locks([write("/content/bulk/7/other")]))
    assert not collide(locks, path_locks([write("/content/site/p"), remove("/content/site/q")]))


def test_r30_many_folders_of_few_pages_take_no_more_locks_than_one_of_many() -> None:
    pages = write(*(f"/folder{n}/page" for n in range(MAX_LOCKS - 2)))
    assert len(path_locks([pages])) <= MAX_LOCKS


def test_r8_builds_of_different_age_lock_a_path_by_the_same_key() -> None:
    locks = path_locks([remove("/"), write("/a")])
    assert locks == {-6018337891422549488: False, -1970711489451281740: True}


@pytest.mark.parametrize(
    "path", ["no slash", "", "//", "/a//b/../c", "/\ud800", "/" + "a/" * 1_023, "/" + "é" * 5_000]
)
def test_r30_a_path_that_is_none_costs_no_more_than_another(path: str) -> None:
    assert 1 <= len(path_locks([write(path), remove(path)])) <= MAX_LOCKS


def test_r30_what_lies_very_deep_is_locked_with_what_it_is_in() -> None:
    deep = "/a" * 1_000
    assert len(path_locks([write(deep)])) == 33
    assert collide(path_locks([write(deep)]), path_locks([remove(deep + "/b")]))
    assert not collide(path_locks([write(deep)]), path_locks([remove("/b")]))
