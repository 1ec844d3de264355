"""Prepared packages keep the order that exports keep: none shows an older state (R6)."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from packhorse.db.connect import connect
from packhorse.wire.messages import Action
from packhorse_services.publisher.outbox.request import Accepted, DistributionRequest, Pending
from packhorse_services.publisher.publish import draft_export
from packhorse_services.publisher.publish import prepared as checks
from packhorse_services.publisher.publish.overlap import Footprint
from packhorse_services.publisher.publish.prepared import PreparedChecks, StalePackage
from tests.harness.prepared import (
    DEEP,
    FIRST,
    PAGES,
    SECOND,
    between_look_and_lock,
    edit,
    prepare,
    requested,
    versions,
)
from tests.harness.producers import Source, outcome
from tests.harness.publishing import Author, page, publish, request


def send(author: Author, requested_for: DistributionRequest) -> Any:
    return outcome(author.early(), requested_for)


def order_is_kept(author: Author) -> bool:
    """Return whether no path goes back to an older state; a page's version only grows (R6)."""
    newest: dict[str, str] = {}
    for path, state in versions(author):
        if state < newest.get(path, ""):
            return False
        newest[path] = state
    return True


def test_parts_go_out_as_the_caller_has_made_them(author: Author, source: Source) -> None:
    bodies = [prepare(author, DEEP, *FIRST), prepare(author, DEEP, *SECOND)]
    for sequence, body in enumerate(bodies):
        assert send(author, requested(source, sequence, DEEP, body)).offset == sequence
    first, second = [placed.message for placed in author.journaled()]
    assert first.package_type == second.package_type == "packhorse/2"
    assert (first.entry.range_from, first.entry.range_to) == FIRST
    assert first.entry.deep_paths == (DEEP,)
    assert [path for path, _ in versions(author)] == [DEEP, *PAGES]
    stored = author.rows("SELECT key, package_id, length, sha256 FROM bookkeeping.stored_package")
    assert sorted(stored) == sorted(
        (body.key, body.package_id, body.length, body.sha256) for body in bodies
    )


def test_without_a_range_it_is_a_plain_deep_package(author: Author, source: Source) -> None:
    send(author, requested(source, 0, DEEP, prepare(author, DEEP)))
    [placed] = author.journaled()
    assert placed.message.package_type == "packhorse/1"
    assert placed.message.entry.node_count == 7


@pytest.mark.parametrize("early", [True, False])
def test_r6_what_was_distributed_since_its_export_makes_a_part_stale(
    author: Author, source: Source, early: bool
) -> None:
    publishing = author.early() if early else author.replica()
    body = prepare(author, DEEP, *FIRST)
    edit(author, PAGES[1], 1)
    assert isinstance(outcome(publishing, requested(source, 0, DEEP, body)), StalePackage)
    assert source.known().last_sequence == -1
    again = outcome(publishing, requested(source, 0, DEEP, prepare(author, DEEP, *FIRST)))
    assert isinstance(again, Accepted)
    assert not again.repeated
    assert order_is_kept(author)


def test_r6_a_request_that_gets_the_lock_first_makes_a_part_stale(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = prepare(author, DEEP, *FIRST)
    early = between_look_and_lock(author, monkeypatch, lambda: edit(author, PAGES[1], 1))
    assert isinstance(outcome(early, requested(source, 0, DEEP, body)), StalePackage)
    assert source.known().last_sequence == -1
    assert order_is_kept(author)


@pytest.mark.proof
def test_r6_the_checker_catches_a_publisher_that_looks_for_no_overlap(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Footprint, "overlaps_any", lambda *_: False)
    body = prepare(author, DEEP, *FIRST)
    edit(author, PAGES[1], 1)
    assert isinstance(send(author, requested(source, 0, DEEP, body)), Accepted)
    assert not order_is_kept(author)


@pytest.mark.proof
def test_r6_the_checker_catches_a_publisher_that_looks_under_no_lock(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_catching_up(*_: Any) -> None:
        pass

    body = prepare(author, DEEP, *FIRST)
    early = between_look_and_lock(author, monkeypatch, lambda: edit(author, PAGES[1], 1))
    monkeypatch.setattr(
        "packhorse_services.publisher.publish.early_export.EarlyDrafts.catch_up", no_catching_up
    )
    assert isinstance(outcome(early, requested(source, 0, DEEP, body)), Accepted)
    assert not order_is_kept(author)


@pytest.mark.parametrize(
    "happen",
    [
        request(PAGES[4]),
        request("/huge-2"),
        request(deep=[PAGES[3]]),
        request(PAGES[0], action=Action.INVALIDATE),
        request(PAGES[5], action=Action.DELETE),
    ],
    ids=str,
)
def test_r6_what_is_not_in_the_range_makes_nothing_stale(
    author: Author, source: Source, happen: DistributionRequest
) -> None:
    body = prepare(author, DEEP, *FIRST)
    publish(author.replica(), happen)
    assert isinstance(send(author, requested(source, 0, DEEP, body)), Accepted)


@pytest.mark.parametrize(
    "happen",
    [
        request(DEEP),
        request(deep=["/"]),
        request(deep=[PAGES[0]]),
        request(DEEP, action=Action.DELETE),
    ],
    ids=str,
)
def test_r6_what_reaches_into_the_range_makes_it_stale(
    author: Author, source: Source, happen: DistributionRequest
) -> None:
    body = prepare(author, DEEP, *FIRST)
    publish(author.replica(), happen)
    assert isinstance(send(author, requested(source, 0, DEEP, body)), StalePackage)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE bookkeeping.slot SET epoch = epoch + 1",
        "DELETE FROM bookkeeping.outbox",
        "UPDATE bookkeeping.slot SET sequence = sequence + 2000000",
    ],
)
def test_r6_a_publisher_that_cannot_know_calls_a_part_stale(
    author: Author, source: Source, statement: str
) -> None:
    body = prepare(author, DEEP, *FIRST)
    publish(author.replica(), request("/huge-2"))
    with connect(author.database_url, "tests") as connection:
        connection.execute(statement.encode())
    assert isinstance(send(author, requested(source, 0, DEEP, body)), StalePackage)


def test_r6_a_number_that_nobody_has_given_was_not_seen(author: Author, source: Source) -> None:
    body = prepare(author, DEEP, *FIRST)
    (epoch, last) = body.seen
    for seen in ((epoch, last + 5), (epoch + 1, last)):
        wrong = replace(body, seen=seen)
        assert isinstance(send(author, requested(source, 0, DEEP, wrong)), StalePackage)


def test_r6_what_is_remembered_of_a_snapshot_is_looked_at_once_and_forgotten_in_the_end(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, looked = author.early(), list[str]()

    class Counted(Footprint):
        def __init__(self, entry: Any) -> None:
            looked.append(entry.package_id)
            super().__init__(entry)

    bodies = [prepare(author, DEEP, path, end) for path, end in itertools.pairwise(PAGES)]
    monkeypatch.setattr(checks, "Footprint", Counted)
    for sequence, body in enumerate(bodies):
        assert isinstance(outcome(early, requested(source, sequence, DEEP, body)), Accepted)
    assert max(Counter(one for one in looked if one).values()) <= 2  # its own request, and once
    monkeypatch.setattr(checks, "_LATER_BYTES", 100)
    late = prepare(author, "/huge-2")
    assert isinstance(outcome(early, requested(source, 9, "/huge-2", late)), Accepted)
    body = replace(prepare(author, DEEP, PAGES[5], ""), seen=bodies[0].seen)
    assert isinstance(outcome(early, requested(source, 10, DEEP, body)), StalePackage)


def test_what_is_remembered_is_bounded(author: Author, source: Source) -> None:
    remembering = PreparedChecks(snapshots=2)
    with connect(author.database_url, "tests") as connection:
        for number in range(5):
            body = replace(prepare(author, DEEP, *FIRST), seen=(0, number))
            remembering.obstacles(connection, [Pending(requested(source, 0, DEEP, body))])
    assert len(remembering._since) == 2


def test_r30_only_paths_of_the_subtree_are_remembered_and_each_once(
    author: Author, source: Source
) -> None:
    beside = [f"/beside/{number}" for number in range(50)]
    author.write(*map(page, beside))
    body = prepare(author, DEEP, *FIRST)
    for _ in range(3):
        publish(author.replica(), request(PAGES[4], *beside, deep=["/beside", PAGES[5]]))
    remembering = PreparedChecks()
    with connect(author.database_url, "tests") as connection:
        assert not remembering.obstacles(connection, [Pending(requested(source, 0, DEEP, body))])
    [since] = remembering._since.values()
    assert since._nodes == {PAGES[4], PAGES[5]}
    assert since._runs == {(f"{PAGES[5]}/", f"{PAGES[5]}0")}


def test_one_group_looks_at_so_many_packages_and_the_next_one_goes_on(
    author: Author, source: Source
) -> None:
    older = prepare(author, DEEP, *FIRST)
    publish(author.replica(), request("/huge-2"))
    newer = prepare(author, DEEP, *SECOND)
    publish(author.replica(), request("/huge-2"))
    first, second = (
        Pending(requested(source, number, DEEP, body)) for number, body in enumerate((older, newer))
    )
    remembering = PreparedChecks()
    with connect(author.database_url, "tests") as connection:
        assert set(remembering.obstacles(connection, [first, second], 2)) == {second}
        assert not remembering.obstacles(connection, [first, second], 2)


def test_who_holds_the_lock_looks_at_little(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_export, "FAR_UNDER_LOCK", 1)
    body = prepare(author, DEEP, *FIRST)
    publish(author.replica(), request("/huge-2"), request("/huge-2"))
    assert isinstance(outcome(author.replica(), requested(source, 0, DEEP, body)), StalePackage)
    assert isinstance(send(author, requested(source, 0, DEEP, body)), Accepted)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.depth) for one in (1, 2))]
)
def test_r6_parts_and_edits_at_random_never_bring_back_an_older_state(
    author: Author, source: Source, seed: int
) -> None:
    chance = random.Random(seed)
    early, version, sent, stale = author.early(), 0, 0, 0
    waiting = [prepare(author, DEEP, *part) for part in (FIRST, SECOND)]
    for _ in range(60):
        place = chance.randrange(2)
        if chance.random() < 0.7:
            version += 1
            path = chance.choice([*PAGES, DEEP])
            author.write(page(path, version + 100))
            if chance.random() < 0.7:
                publish(early, request(path))
        else:
            done = outcome(early, requested(source, sent, DEEP, waiting[place]))
            assert isinstance(done, Accepted | StalePackage)
            sent += isinstance(done, Accepted)
            stale += isinstance(done, StalePackage)
            waiting[place] = prepare(author, DEEP, *(FIRST, SECOND)[place])
    assert order_is_kept(author)
    assert sent > 2
    assert stale > 2
