"""Snapshots that go on from one another: what has changed is merged in, the rest is shared."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from packhorse.blobs.api import BlobStore
from packhorse.packages.limits import PackageCorrupt
from packhorse.snapshots.snapshot import (
    ContentSnapshot,
    PartFile,
    manifest_key_of,
    new_id,
    node_list_key,
)
from packhorse.snapshots.store import publish, remove
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.history import onto_base
from packhorse_services.pipeline.history.node_lists import listed, store_list
from packhorse_services.pipeline.history.onto_base import BaseNodes
from packhorse_services.pipeline.snapshot import parts, task
from packhorse_services.pipeline.snapshot.task import remove_leftovers
from tests.harness.feed import page
from tests.spark.history.archived_site import Site

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("several_partitions")]

PART = 200
"""Characters of a part: a handful of nodes."""


def some_day(site: Site, random_: random.Random) -> None:
    """Change some of the site: pages, subtrees that go or are replaced, parts of subtrees."""
    for _ in range(random_.randint(3, 6)):
        top, version = f"/s/{random_.choice('abcé')}", random_.randint(2, 99)
        paths = [f"{top}/{name}" for name in random_.sample("0123456789", 3)]
        pages = [page(path, version) for path in sorted(paths)]
        kind = random_.choice(("pages", "below", "delete", "deep", "part"))
        if kind == "pages":
            site.history.add(*pages)
        elif kind == "below":
            site.history.add(page(f"{paths[0]}/x/y", version), page(f"/{version}", version))
        elif kind == "delete":
            site.history.delete(paths[0], random_.choice((top, paths[1])))
        elif kind == "deep":
            site.history.add(page(top, version), *pages, deep=[top])
        else:
            inside = [one for one in pages if f"{top}/3" <= one.path < f"{top}/7"]
            site.history.add(*inside, deep=[top], part=(f"{top}/3", f"{top}/7"))


def all_listed(site: Site, snapshot: ContentSnapshot) -> set[tuple[str, int, int, int]]:
    rows = BaseNodes(site.spark, snapshot, site.blobs_url, snapshot.offset).places().collect()
    return {(row.path, row.size, row.hash, row.position) for row in rows}


def files_of(snapshot: ContentSnapshot) -> list[PartFile]:
    return [file for part in snapshot.parts for file in part.files]


def assert_is_listed(site: Site, snapshot: ContentSnapshot) -> None:
    with_lists = all_listed(site, snapshot)
    for file in files_of(snapshot):
        site.blobs.delete(node_list_key(file))
    assert all_listed(site, snapshot) == with_lists


@pytest.mark.parametrize(
    ("seed", "days", "part", "few_writes"),
    [
        (7, 1, 3 * PART, 0),
        (7, 3, 20 * PART, 1_000),
        *(pytest.param(2, 12, 3 * PART, few, marks=pytest.mark.depth) for few in (0, 1_000)),
    ],
)
def test_r8_each_day_holds_what_the_packages_come_to(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    days: int,
    part: int,
    few_writes: int,
) -> None:
    monkeypatch.setattr(onto_base, "_FEW_WRITES", few_writes)
    random_ = random.Random(seed)
    for top in "abcé":
        site.history.add(*[page(f"/s/{top}/{number}", number) for number in range(10)])
    site.archive()
    before = site.make(part_characters=part)
    for _ in range(days):
        some_day(site, random_)
        site.archive()
        made = site.make(part_characters=part, keep=1)
        assert (made.base, made.pruned) == (before.snapshot, 1)
        assert site.content_of(made.snapshot) == site.history.model()
        before = made
    assert_is_listed(site, before.snapshot)


def test_parts_of_which_nothing_has_changed_are_shared_until_nobody_needs_them(site: Site) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(40)])
    site.archive()
    first = site.make(part_characters=PART).snapshot
    site.blobs.delete(node_list_key(first.parts[2]))
    site.history.add(page("/s/07", 99))
    site.history.delete("/s/39")
    site.archive()
    second = site.make(part_characters=PART, keep=1).snapshot
    before, after = ([part.sha256 for part in one.parts] for one in (first, second))
    assert before == after
    assert [number for number, part in enumerate(second.parts) if part.changes] == [0, 4]
    shared = set(first.parts) & set(second.parts)
    assert len(shared) == len(before) - 3, "one had no list, so it was written again"
    assert all(site.blobs.head(node_list_key(file)) for file in files_of(second))
    keys = {file.key for file in files_of(second)}
    assert set(site.parts()) == keys | {first.parts[2].key}
    unreadable = manifest_key_of(9, new_id())
    site.blobs.put(unreadable, [b"of a newer build"])
    assert remove_leftovers(site.blobs, older_than_ms=-1000) == 0, "who knows what it names"
    site.blobs.delete(unreadable)
    assert remove_leftovers(site.blobs, older_than_ms=-1000) == 1
    assert set(site.parts()) == keys
    assert site.content_of(second) == site.history.model()


def test_r22_a_run_that_shares_parts_keeps_them_from_one_that_removes_their_snapshot(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(60)])
    site.archive()
    first = site.make(part_characters=3 * PART).snapshot
    for blob in site.blobs.list("snapshots/"):
        path = Path(site.blobs_url, blob.key)
        os.utime(path, (1, path.stat().st_mtime - 2 * 24 * 3600))
    site.history.add(page("/s/00", 99))
    site.archive()

    def publish_late(snapshot: ContentSnapshot, blobs: BlobStore) -> None:
        remove(first, blobs)
        assert remove_leftovers(blobs) == 0, "changes lie beside the part that has changed"
        publish(snapshot, blobs)

    monkeypatch.setattr(task, "publish", publish_late)
    second = site.make(part_characters=3 * PART).snapshot
    assert len(set(first.parts) & set(second.parts)) == len(first.parts) - 1
    assert [at for at, part in enumerate(second.parts) if part.changes] == [0]
    assert all(site.blobs.head(node_list_key(file)) for file in files_of(second))
    assert site.content_of(second) == site.history.model()


def test_what_has_changed_lies_beside_a_part_until_it_is_much_or_old(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(60)])
    days = [
        lambda: site.history.add(page("/s/07", 99), page("/s/07-new", 1)),
        lambda: site.history.delete("/s/39", "/s/07-new"),
        lambda: site.history.add(page("/s/39", 98), page("/s/07", 97)),
        lambda: site.history.add(*[page(f"/s/{number:02}", 96) for number in range(20)]),
    ]
    site.archive()
    made = [site.make(part_characters=100_000).snapshot]
    for day in days:
        day()
        site.archive()
        made.append(site.make(part_characters=100_000, keep=1).snapshot)
        assert site.content_of(made[-1]) == site.history.model()
    files = [[part.sha256 for part in one.parts] for one in made]
    assert files == [files[0]] * 4 + [files[-1]] != [files[0]] * 5
    entries = [[part.changes and part.changes.entries for part in one.parts] for one in made]
    assert entries == [[None], [2], [3], [3], [None]]
    assert [one.nodes for one in made] == [61, 62, 60, 61, 61]
    assert remove_leftovers(site.blobs, older_than_ms=-1000) == 4
    since = {part.changes.since_ms for one in made for part in one.parts if part.changes}
    assert len(since) == 1, "of the first of these changes"
    for number, days in enumerate((1, 1, 0)):
        monkeypatch.setattr(parts, "_DAYS", days)
        site.history.add(page("/s/01", number))
        site.archive()
        last = site.make(part_characters=100_000).snapshot
        assert [bool(part.changes) for part in last.parts] == [days > 0]
    assert site.content_of(last) == site.history.model()


@pytest.mark.parametrize("gone", ["list", "list of changes"])
def test_a_part_without_its_list_is_written_anew(site: Site, gone: str) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(60)])
    for number in range(2):
        site.history.add(page("/s/07", number))
        site.archive()
        (part,) = site.make(part_characters=100_000).snapshot.parts
    site.blobs.delete(node_list_key(part.files[gone != "list"]))
    site.history.add(page("/s/07", 3))
    site.archive()
    (after,) = site.make(part_characters=100_000).snapshot.parts
    assert [bool(one.changes) for one in (part, after)] == [True, gone != "list"]
    assert site.blobs.head(node_list_key(after))


def test_a_base_with_changes_is_read_like_any_other(site: Site) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(60)])
    site.archive()
    site.make(part_characters=100_000)
    site.history.add(page("/s/07", 99))
    site.history.delete("/s/39")
    site.archive()
    base = site.make(part_characters=100_000).snapshot
    assert all(part.changes for part in base.parts)
    site.history.add(page("/s/08", 98))
    site.history.add(page("/other", 1))
    site.archive()
    anew = site.make(part_characters=10).snapshot
    assert len(anew.parts) > 1, "its texts are read from the part and from its changes"
    assert site.content_of(anew) == site.history.model()
    assert_is_listed(site, base)


def test_a_part_that_grows_is_cut_and_many_that_shrank_are_cut_anew(site: Site) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(8)])
    site.archive()
    first = site.make(part_characters=PART).snapshot
    site.history.add(*[page(f"/s/05-{number:02}", number) for number in range(25)])
    site.archive()
    grown = site.make(part_characters=PART).snapshot
    assert len(grown.parts) > len(first.parts) + 2
    assert all(part.content_length < 3 * PART for part in grown.parts)
    site.history.delete("/s")
    site.history.add(page("/s/1", 1))
    site.archive()
    assert [part.nodes for part in site.make(part_characters=PART).snapshot.parts] == [2]
    assert site.content_of(grown) == site.history.model(up_to=1)


@pytest.mark.parametrize("changed", [[5], range(8)], ids=["read", "written anew"])
def test_nothing_comes_of_a_list_that_does_not_fit_its_part(
    site: Site, changed: Sequence[int]
) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(8)])
    site.archive()
    (part, *_) = site.make(part_characters=100_000).snapshot.parts
    rows = listed(part, site.blobs)
    assert rows is not None
    paths = [path.replace("/s/05", "/s/05x") for path in rows["path"].to_pylist()]
    site.blobs.delete(node_list_key(part))
    store_list(rows.set_column(0, "path", [paths]), part, site.blobs)
    site.history.add(*[page(f"/s/{number:02}", 99) for number in changed])
    site.archive()
    if len(changed) > 1:
        with pytest.raises(TaskFailed, match="a list of nodes does not fit its part"):
            site.make(part_characters=100_000)
        return
    made = site.make(part_characters=100_000).snapshot
    with pytest.raises(PackageCorrupt, match="with its changes holds 9 nodes, not 10"):
        site.content_of(made)
