"""A snapshot that goes on from another one is broken off, or killed, at its commit points (R22)."""

import pytest

from packhorse.snapshots.store import all_of
from packhorse_services.pipeline.snapshot import task
from packhorse_services.pipeline.snapshot.continuing import ContinuedSnapshot
from packhorse_services.pipeline.snapshot.task import remove_leftovers
from tests.harness.feed import page
from tests.harness.task_kills import broken_off, killed_task
from tests.spark.history.archived_site import Site

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("several_partitions")]

PART = 200
POINTS = [
    ((ContinuedSnapshot, "_merged"), 1, "parts are shared"),
    ((task, "publish"), 1, "parts are stored"),
    ((task, "remove_leftovers"), 2, "it is published"),
    ((task, "remove"), 2, "leftovers are removed"),
]
"""Before what a run ends, how many snapshots there are then, and what it has done."""


@pytest.fixture
def changed(site: Site) -> Site:
    """A site with a snapshot of many parts, most of which have not changed since."""
    site.history.add(*[page(f"/s/{number:02}", number) for number in range(40)])
    site.archive()
    site.make(part_characters=PART)
    site.history.add(page("/s/07", 99))
    site.history.delete("/s/39")
    site.archive()
    return site


def check(site: Site, snapshots: int, when: str) -> None:
    """Hold what each snapshot that is found would give a subscriber against the model."""
    found = list(all_of(site.blobs))
    assert len(found) == snapshots, when
    for one in found:
        assert site.content_of(one) == site.history.model(up_to=one.offset), when


def test_r22_a_snapshot_that_is_broken_off_is_made_by_the_next_run(changed: Site) -> None:
    for point, snapshots, when in POINTS:
        with broken_off(*point):
            changed.make(part_characters=PART, keep=1)
        check(changed, snapshots, when)
    changed.make(part_characters=PART, keep=1)
    check(changed, 1, "one run has ended")
    remove_leftovers(changed.blobs, older_than_ms=-1000)
    check(changed, 1, "what is left over has gone")
    [snapshot] = all_of(changed.blobs)
    assert set(changed.parts()) == {file.key for part in snapshot.parts for file in part.files}


@pytest.mark.depth
@pytest.mark.parametrize("point", ["publish@before1", "publish@after1", "prune@before1"])
def test_r22_a_snapshot_that_is_killed_is_made_by_the_next_run(changed: Site, point: str) -> None:
    settings = {"PACKHORSE_BLOBS_URL": changed.blobs_url}
    arguments = ("snapshot", "--keep", "1")
    killed_task(changed.location, f"snapshot.task:{point}", *arguments, settings=settings)
    check(changed, 1 if point == "publish@before1" else 2, point)
    changed.make(keep=1)
    check(changed, 1, "one run has ended")
