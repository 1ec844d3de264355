"""Snapshots that go on from one another: what has changed is merged in, the rest is shared."""

import os
import random
from pathlib import Path

import pytest

from packhorse.blobs.api import BlobStore
from packhorse.snapshots.snapshot import ContentSnapshot, manifest_key_of, new_id, node_list_key
from packhorse.snapshots.store import publish, remove
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.history.node_lists import listed, store_list
from packhorse_services.pipeline.history.onto_base import BaseNodes
from packhorse_services.pipeline.snapshot import task
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


@pytest.mark.parametrize(("seed", "days"), [(7, 1), pytest.param(2, 12, marks=pytest.mark.depth)])
def test_r8_each_day_holds_what_the_packages_come_to(site: Site, seed: int, days: int) -> None:
    random_ = random.Random(seed)
    for top in "abcé":
        site.history.add(*[page(f"/s/{top}/{number}", number) for number in range(10)])
    site.archive()
    before = site.make(part_characters=3 * PART)
    for _ in range(days):
        some_day(site, random_)
        site.archive()
        made = site.make(part_characters=3 * PART, keep=1)
        assert (made.base, made.pruned) == (before.snapshot, 1)
        assert site.content_of(made.snapshot) == site.history.model()
        before = made
    with_lists = all_listed(site, before.snapshot)
    for part in before.snapshot.parts:
        site.blobs.delete(node_list_key(part))
    assert all_listed(site, before.snapshot) == with_lists


def test_parts_of_which_nothing_has_changed_are_shared_until_nobody_needs_them(site: Site) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(40)])
    site.archive()
    first = site.make(part_characters=PART).snapshot
    site.blobs.delete(node_list_key(first.parts[2]))  # as of a snapshot by an older build
    site.history.add(page("/s/07", 99))
    site.history.delete("/s/39")
    site.archive()
    second = site.make(part_characters=PART, keep=1).snapshot
    before, after = ([part.sha256 for part in one.parts] for one in (first, second))
    assert len(before) == len(after)
    assert sum(one == other for one, other in zip(before, after, strict=True)) == len(before) - 2
    shared = set(first.parts) & set(second.parts)
    assert len(shared) == len(before) - 3, "one had no list, so it was written again"
    assert all(site.blobs.head(node_list_key(part)) for part in second.parts)
    assert set(site.parts()) == {part.key for part in (*first.parts, *second.parts)}
    unreadable = manifest_key_of(9, new_id())
    site.blobs.put(unreadable, [b"of a newer build"])
    assert remove_leftovers(site.blobs, older_than_ms=-1000) == 0, "who knows what it names"
    site.blobs.delete(unreadable)
    assert remove_leftovers(site.blobs, older_than_ms=-1000) == 3
    assert set(site.parts()) == {part.key for part in second.parts}
    assert site.content_of(second) == site.history.model()


def test_r22_a_run_that_shares_parts_keeps_them_from_one_that_removes_their_snapshot(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(20)])
    site.archive()
    first = site.make(part_characters=PART).snapshot
    for blob in site.blobs.list("snapshots/"):
        path = Path(site.blobs_url, blob.key)
        os.utime(path, (1, path.stat().st_mtime - 2 * 24 * 3600))
    site.history.add(page("/s/00", 99))
    site.archive()

    def publish_late(snapshot: ContentSnapshot, blobs: BlobStore) -> None:
        remove(first, blobs)
        assert remove_leftovers(blobs) == 1, "the part that has changed"
        publish(snapshot, blobs)

    monkeypatch.setattr(task, "publish", publish_late)
    second = site.make(part_characters=PART).snapshot
    assert len(set(first.parts) & set(second.parts)) == len(first.parts) - 1
    assert all(site.blobs.head(node_list_key(part)) for part in second.parts)
    assert site.content_of(second) == site.history.model()


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


def test_a_list_that_does_not_fit_its_part_ends_the_run(site: Site) -> None:
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(8)])
    site.archive()
    (part, *_) = site.make(part_characters=100_000).snapshot.parts
    rows = listed(part, site.blobs)
    assert rows is not None
    paths = [path.replace("/s/05", "/s/05x") for path in rows["path"].to_pylist()]
    site.blobs.delete(node_list_key(part))
    store_list(rows.set_column(0, "path", [paths]), part, site.blobs)
    site.history.add(page("/s/05", 99))
    site.archive()
    with pytest.raises(TaskFailed, match="a list of nodes does not fit its part"):
        site.make(part_characters=100_000)
