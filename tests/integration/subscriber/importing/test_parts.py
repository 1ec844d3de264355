"""Parts of a subtree through a subscription.

Grouped, by reference, refused if they are none (R8, R14).
"""

import json
from dataclasses import replace

from packhorse.content.node import Node
from packhorse.packages.path_filter import PathFilter
from packhorse.wire.messages import Status
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.path_locks import path_locks
from tests.harness.feed import Feed, page
from tests.harness.noise import noise
from tests.harness.parts import cut, part_of_subtree
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, failed
from tests.integration.subscriber.conftest import Workers

DEEP = "/huge"
STALE = [page(DEEP), *(page(f"{DEEP}/{number:03}/old") for number in range(0, 60, 7))]


def large_and_small() -> list[Node]:
    """Pages of which some make a part too large for the journal."""
    large = {10, 11, 40}
    return [
        page(DEEP, 2),
        *(
            Node(
                f"{DEEP}/{number:03}",
                "page",
                json.dumps({"text": noise() if number in large else "short"}),
            )
            for number in range(60)
        ),
    ]


def test_r8_a_subtree_in_parts_is_imported_as_the_fold(feed: Feed, worker: Worker) -> None:
    feed.add(*STALE, deep=[DEEP])
    feed.add(page("/huge-2"))
    nodes = large_and_small()
    bounds = [f"{DEEP}/{number:03}" for number in (5, 10, 12, 30, 40, 41)]
    references = 0
    for part in cut(DEEP, nodes, bounds, feed.blobs):
        references += part.body is not None and part.body.inline is None
        feed.append(part)
    assert references == 2
    worker.run()
    assert set(content_of(worker.url)) == {"/huge-2", *(node.path for node in nodes)}
    assert_is_the_fold(worker.url, feed)


def test_r35_a_part_of_which_nothing_is_taken_is_passed_over(feed: Feed, worker: Worker) -> None:
    worker.path_filter = PathFilter(exclude=(f"{DEEP}/private",))
    below = [page(f"{DEEP}/private"), *(page(f"{DEEP}/private/{one}") for one in "abc")]
    nodes = [page(DEEP), page(f"{DEEP}/a"), *below, page(f"{DEEP}/z")]
    for part in cut(DEEP, nodes, [f"{DEEP}/private/a", f"{DEEP}/private/c"], feed.blobs):
        feed.append(part)
    worker.run()
    assert set(content_of(worker.url)) == {DEEP, f"{DEEP}/a", f"{DEEP}/z"}
    worker.send_statuses()
    told = [(one.status, one.reason) for one in feed.statuses()]
    done, left_out = (Status.IMPORTED, ""), f"PACKHORSE_EXCLUDE names {DEEP}/private"
    assert told == [done, (Status.SKIPPED, left_out), done]


def test_r14_a_part_with_a_node_outside_its_range_is_a_failed_attempt(
    feed: Feed, workers: Workers
) -> None:
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0))
    feed.add(*STALE, deep=[DEEP])
    nodes = [page(f"{DEEP}/{name}") for name in ("a", "m")]
    bad = feed.append(part_of_subtree(DEEP, "", f"{DEEP}/m", nodes, feed.blobs))
    feed.append(part_of_subtree(DEEP, f"{DEEP}/m", "", nodes[1:], feed.blobs))
    worker.run()
    assert failed(worker, feed) == [(bad, 1)]
    assert "not in its range" in next(one.reason for one in feed.statuses() if one.reason)
    assert f"{DEEP}/m" in content_of(worker.url)


def test_a_part_is_locked_as_its_whole_subtree(feed: Feed) -> None:
    part = part_of_subtree(DEEP, "", f"{DEEP}/m", [page(DEEP)], feed.blobs)
    whole = replace(part, entry=replace(part.entry, range_to=""))
    assert path_locks([part]) == path_locks([whole])
    assert any(path_locks([part]).values())
