"""Prepared packages have the promises of a producer's numbers: each once, in order (R5)."""

from collections import Counter
from dataclasses import replace

import pytest

from packhorse.db.connect import connect
from packhorse_services.publisher.outbox.producers import EarlierRefused
from packhorse_services.publisher.outbox.request import Accepted
from packhorse_services.publisher.publish.prepared import PackageIdUsed, StalePackage
from tests.harness.dying_publisher import crash_once
from tests.harness.prepared import (
    DEEP,
    FIRST,
    PAGES,
    SECOND,
    between_look_and_lock,
    edit,
    prepare,
    requested,
)
from tests.harness.producers import Source, outcome
from tests.harness.publishing import (
    Author,
    publish,
    request,
)


def test_r5_a_repeated_sequence_gets_its_answer_whatever_it_carries(
    author: Author, source: Source
) -> None:
    body = prepare(author, DEEP, *FIRST)
    first = outcome(author.early(), requested(source, 0, DEEP, body))
    edit(author, PAGES[1], 1)
    for again in (body, prepare(author, DEEP, *FIRST), replace(body, seen=(99, 0))):
        repeated = outcome(author.early(), requested(source, 0, DEEP, again))
        assert (repeated.repeated, repeated.package_id) == (True, first.package_id)
    assert len(author.journaled()) == 2


def test_a_package_id_is_used_once(author: Author, source: Source) -> None:
    body = prepare(author, DEEP, *FIRST)
    outcome(author.early(), requested(source, 0, DEEP, body))
    assert isinstance(outcome(author.early(), requested(source, 1, DEEP, body)), PackageIdUsed)
    with connect(author.database_url, "tests") as connection:
        connection.execute("DELETE FROM bookkeeping.outbox")
    again = replace(body, seen=prepare(author, DEEP, *FIRST).seen)
    assert isinstance(outcome(author.early(), requested(source, 1, DEEP, again)), PackageIdUsed)
    assert source.known().last_sequence == 0


def test_the_id_of_an_ordinary_package_is_used_too(author: Author, source: Source) -> None:
    [ordinary] = publish(author.replica(), request("/huge-2"))
    body = replace(prepare(author, DEEP, *FIRST), package_id=ordinary.package_id)
    assert isinstance(outcome(author.early(), requested(source, 0, DEEP, body)), PackageIdUsed)


@pytest.mark.parametrize("early", [True, False])
def test_one_package_id_twice_in_a_group_costs_the_second_request_alone(
    author: Author, source: Source, early: bool
) -> None:
    first = prepare(author, DEEP, *FIRST)
    second = replace(prepare(author, DEEP, *SECOND), package_id=first.package_id)
    one, two, third, other = publish(
        author.early() if early else author.replica(),
        requested(source, 0, DEEP, first),
        requested(source, 1, DEEP, second),
        requested(source, 2, DEEP, prepare(author, DEEP, *SECOND)),
        request("/huge-2"),
    )
    assert one.future.result().package_id == first.package_id
    assert isinstance(two.future.exception(), PackageIdUsed)
    assert isinstance(third.future.exception(), EarlierRefused)
    assert isinstance(other.future.result(), Accepted)
    assert source.known().last_sequence == 0


def test_an_id_that_another_replica_takes_meanwhile_costs_its_request_alone(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Source(author, "other")
    other.register()
    first, second = prepare(author, DEEP, *FIRST), prepare(author, DEEP, *SECOND)
    second = replace(second, package_id=first.package_id)

    def overtake() -> None:
        publish(author.replica(), requested(other, 0, DEEP, first))

    early = between_look_and_lock(author, monkeypatch, overtake)
    one, two = publish(early, requested(source, 0, DEEP, second), request("/huge-2"))
    assert isinstance(one.future.exception(), PackageIdUsed)
    assert isinstance(two.future.result(), Accepted)
    assert len(author.journaled()) == 2


def test_r5_nothing_overtakes_a_part_that_is_stale(author: Author, source: Source) -> None:
    stale = prepare(author, DEEP, *FIRST)
    edit(author, PAGES[1], 1)
    group = [
        requested(source, 0, DEEP, stale),
        requested(source, 1, DEEP, prepare(author, DEEP, *SECOND)),
    ]
    [first, second] = publish(author.early(), *group)
    assert isinstance(first.future.exception(), StalePackage)
    assert isinstance(second.future.exception(), EarlierRefused)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # dead cursors
def test_r5_a_crash_at_any_step_leaves_each_part_in_the_journal_once(
    author: Author, source: Source
) -> None:
    survivor, reconciler, steps = author.early(), author.replica(), 0
    while True:
        body = prepare(author, DEEP, *FIRST)
        died = crash_once(author, steps, requested(source, steps, DEEP, body), early=True)
        reconciler.reconcile()
        answer = outcome(survivor, requested(source, steps, DEEP, body))
        assert isinstance(answer, Accepted), (steps, answer)
        steps += 1
        if not died:
            break
    assert steps > 20
    found = Counter(placed.message.entry.package_id for placed in author.journaled())
    assert set(found.values()) == {1}
    assert source.journaled() == list(range(steps))
    stored = author.rows("SELECT package_id FROM bookkeeping.stored_package")
    assert {package_id for (package_id,) in stored} == set(found)
