"""Import: content, position and status are one transaction, in the journal's order (R8-R10)."""

import random
import uuid
from typing import Any

import pytest

from packhorse.runtime import tracing
from packhorse.wire.messages import Action, Status
from packhorse.wire.package_codec import encode_package
from packhorse_services.subscriber.importing import session
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.context import GroupLimits
from packhorse_services.subscriber.importing.importer import Importer
from packhorse_services.subscriber.journal import arrivals, prefetch
from packhorse_services.subscriber.journal.arrivals import Arrival
from packhorse_services.subscriber.journal.prefetch import Decoding
from tests.harness.clock import ManualClock
from tests.harness.feed import Feed, page
from tests.harness.postgres import Databases
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, position_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers


@pytest.fixture(params=["memory", "sql"])
def journal_url(request: pytest.FixtureRequest) -> str:
    """The journal in memory, then the one in Postgres."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}"
    databases: Databases = request.getfixturevalue("databases")
    return databases.new("journal")


def test_r8_content_is_the_fold_of_the_journal(feed: Feed, worker: Worker) -> None:
    feed.add(page("/site/home"), page("/site/news"))
    feed.add(page("/site"), page("/site/home", 2), page("/site/new"), deep=["/site"])
    feed.delete("/site/new")
    feed.add(page("/other/deep/down"))
    worker.run()
    assert set(content_of(worker.url)) == {
        *("/site", "/site/home"),
        *("/other", "/other/deep", "/other/deep/down"),
    }
    assert_is_the_fold(worker.url, feed)


def test_r8_packages_that_wait_share_a_transaction(feed: Feed, worker: Worker) -> None:
    feed.add(page("/first"))
    worker.run()
    for number in range(50):
        feed.add(page(f"/n{number}"))
    worker.run()
    [(transactions,)] = rows_of(
        worker.url, "SELECT count(DISTINCT xmin::text) FROM content.node WHERE path LIKE '/n%'"
    )
    assert transactions < 5
    assert_is_the_fold(worker.url, feed)


@pytest.mark.parametrize(("limit", "most"), [({"packages": 2}, 2), ({"bytes": 1}, 1)])
def test_what_waits_behind_a_blocked_package_is_no_more_than_a_transaction_takes(
    feed: Feed, workers: Workers, limit: dict[str, int], most: int
) -> None:
    worker = workers(limits=GroupLimits(**limit, passed_s=0))
    bad = feed.bad()
    for number in range(9):
        feed.add(page(f"/n{number}"))
    worker.step_until_failed(5)
    worker.clear(bad)
    worker.run()
    together = rows_of(
        worker.url,
        "SELECT count(*) FROM content.node WHERE path LIKE '/n%' GROUP BY xmin::text",
    )
    assert sum(count for (count,) in together) == 9
    assert max(count for (count,) in together) <= most


def test_r10_what_waits_is_decoded_ahead_only_after_a_package_was_passed(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[int] = []

    def decode_ahead(arrival: Arrival, agent: str) -> None:
        assert position_of(worker.url).offset >= 0, "nothing is passed yet"
        ahead.append(arrival.offset)
        arrivals.decode_ahead(arrival, agent)

    monkeypatch.setattr(prefetch, "decode_ahead", decode_ahead)
    for number in range(3):
        feed.add(page(f"/n{number}"))
    worker.run()
    late = [feed.add(page(f"/late{number}")) for number in range(3)]
    worker.run()
    assert set(late) <= set(ahead)
    assert 0 not in ahead
    assert_is_the_fold(worker.url, feed)


def test_r10_a_package_is_tried_by_itself_in_its_trace_and_nothing_is_decoded_meanwhile(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding, commit, seen = Decoding(), Importer.commit, list[tuple[str, bool]]()

    def watched(*given: Any) -> Any:
        if may_decode := decoding.begin():
            decoding.end()
        seen.append((tracing.trace_id(), may_decode))
        return commit(*given)

    monkeypatch.setattr(session, "DECODING", decoding)
    monkeypatch.setattr(Importer, "commit", watched)
    for number in range(2):  # the first one after a start is tried by itself
        path, trace = f"/n{number}", f"{number + 1:032x}"
        encoded = encode_package(feed.message(Action.ADD, [path], (), [page(path)]))
        traced = {**encoded.headers, tracing.TRACEPARENT: f"00-{trace}-{1:016x}-01".encode()}
        feed.raw(encoded.value, traced)
        worker.run()
    assert seen == [(f"{1:032x}", False), ("", True)]


def test_r9_status_and_position_are_committed_with_the_content(feed: Feed, worker: Worker) -> None:
    offset = feed.add(page("/a"))
    worker.run()
    ((created, status, package_id),) = rows_of(
        worker.url,
        "SELECT (position.xmin = status.xmin AND status.xmin = node.xmin), status, "
        "status.package_id FROM bookkeeping.position, bookkeeping.status, content.node "
        "WHERE node.path = '/a'",
    )
    assert (created, status) == (True, "IMPORTED")
    assert position_of(worker.url).package_id == package_id
    assert position_of(worker.url).offset == offset


def test_r9_a_status_is_sent_once_and_again_only_when_the_mark_was_lost(
    feed: Feed, worker: Worker
) -> None:
    first, second = feed.add(page("/a")), feed.send(Action.INVALIDATE, "/a")
    worker.run()
    worker.send_statuses()
    worker.send_statuses()
    assert [(status.offset, status.status) for status in feed.statuses()] == [
        (first, Status.IMPORTED),
        (second, Status.IMPORTED),
    ]
    assert rows_of(worker.url, "SELECT count(*) FROM bookkeeping.status") == [(0,)]


def test_r9_statuses_are_kept_until_the_journal_has_them(feed: Feed, workers: Workers) -> None:
    worker = workers()
    feed.add(page("/a"))
    worker.run()
    worker.die()
    workers(name="later").send_statuses()
    assert len(feed.statuses()) == 1
    assert feed.statuses()[0].subscriber == "sub"


def test_r9_a_subscriber_that_is_not_editable_reports_failures_only(
    feed: Feed, workers: Workers
) -> None:
    worker = workers(editable=False, policy=RetryPolicy(0, 0.0, 0.0))
    feed.add(page("/a"))
    failed = feed.bad()
    feed.add(page("/b"))
    worker.run()
    worker.send_statuses()
    assert [(s.offset, s.status) for s in feed.statuses()] == [(failed, Status.REMOVED_FAILED)]


def test_r10_packages_of_other_agents_are_passed_over(feed: Feed, worker: Worker) -> None:
    feed.add(page("/mine"))
    feed.add(page("/theirs"), agent="other")
    feed.bad("/theirs", agent="other")
    last = feed.add(page("/theirs/again"), agent="other")
    worker.run()
    assert set(content_of(worker.url)) == {"/mine"}
    assert position_of(worker.url).offset == last


def test_r27_a_repeated_package_is_imported_once(feed: Feed, worker: Worker) -> None:
    feed.producer = "author"
    old = feed.message(Action.ADD, ["/a"], [], [page("/a", 1)])
    feed.append(old)
    feed.add(page("/a", 2))
    worker.run()
    feed.append(old)
    feed.add(page("/b"))
    feed.append(old)
    worker.run()
    assert content_of(worker.url)["/a"][1]["version"] == 2
    assert_is_the_fold(worker.url, feed)


def test_r27_repeats_inside_one_group_are_none(feed: Feed, worker: Worker) -> None:
    feed.producer = "author"
    feed.add(page("/start"))
    worker.run()
    first = feed.message(Action.ADD, ["/a"], [], [page("/a", 1)])
    second = feed.message(Action.ADD, ["/a"], [], [page("/a", 2)])
    for message in (first, second, first, second, first):
        feed.append(message)
    worker.run()
    worker.send_statuses()
    assert content_of(worker.url)["/a"][1]["version"] == 2
    assert len(feed.statuses()) == 3


def test_r27_a_package_that_was_removed_is_known_when_it_comes_again(
    feed: Feed, workers: Workers
) -> None:
    feed.producer = "author"
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0))
    lost = feed.message(Action.ADD, ["/a"], [], [page("/a", 1)])
    feed.append(lost)
    worker.clear(0)
    worker.run()
    feed.append(lost)
    worker.run()
    assert content_of(worker.url) == {}


def test_large_packages_come_by_reference(feed: Feed, worker: Worker) -> None:
    noise = random.Random(1)
    feed.add(page("/small"))
    nodes = [page(f"/big/{n}", text=noise.randbytes(20_000).hex()) for n in range(60)]
    feed.add(page("/big"), *nodes, deep=["/big"])
    feed.add(page("/big/1", 7))
    worker.run()
    assert_is_the_fold(worker.url, feed)
    assert len(content_of(worker.url)) == 62


def test_passed_over_records_are_stored_in_their_own_time(feed: Feed, workers: Workers) -> None:
    clock = ManualClock()
    worker = workers(clock=clock, limits=GroupLimits(passed_s=10.0))
    stored = feed.add(page("/a"))
    worker.run()
    for _ in range(2):
        worker.arrived.clear()
        last = feed.add(page("/b"), agent="other")
        assert worker.arrived.wait(120)
        worker.session.step()
        assert position_of(worker.url).offset == worker.report.state.offset == stored
        clock.advance(10.0)
        eventually(
            lambda last=last: worker.session.step() and position_of(worker.url).offset == last
        )
        assert worker.report.state.offset == last
        stored = last
