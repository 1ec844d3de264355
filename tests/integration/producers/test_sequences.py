"""R5 for replayable sources: each (producer, sequence) is in the journal once, whatever happens."""

import random
from collections.abc import Sequence
from contextlib import closing

import pytest

from packhorse.errors import PackhorseError
from packhorse.messaging.deduplicated import DuplicateUnknown
from packhorse.messaging.open import open_journal
from packhorse.packages.build import PathMissing
from packhorse_services.publisher.outbox import producers
from packhorse_services.publisher.outbox.producers import EarlierRefused, SequencePassed
from packhorse_services.publisher.outbox.request import DistributionRequest, Pending
from tests.harness.dying_publisher import crash_once
from tests.harness.producers import Source, outcome, replay, taken
from tests.harness.publishing import (
    Author,
    AwayJournal,
    Crash,
    Fuse,
    LossyJournal,
    fragile_lock,
    publish,
    request,
)
from tests.harness.waiting import eventually

ALL_JOURNALS = ["memory", "sql", pytest.param("kafka", marks=pytest.mark.kafka)]


def crash_once_at(
    journal_url: str, author: Author, steps: int, requests: Sequence[DistributionRequest]
) -> bool:
    with closing(open_journal(journal_url, client_name="dying")) as journal:  # what is sent arrives
        return crash_once(author, steps, *requests, journal=journal)


@pytest.mark.parametrize(
    "journal_url",  # each step is before or behind a journal's whole append
    [pytest.param("memory", marks=pytest.mark.depth), "sql"],
    indirect=True,
)
def test_r5_a_crash_at_any_step_leaves_each_sequence_in_the_journal_once(
    author: Author, journal_url: str, source: Source
) -> None:
    survivor = author.replica()
    steps = last = 0
    while crash_once_at(journal_url, author, steps, source.requests(last + 1, last + 2)):
        last += 2
        survivor.reconcile()
        replay(survivor, source, last)
        assert source.journaled() == list(range(1, last + 1)), steps
        known = source.known()
        assert known.last_sequence == known.last_persisted == last
        steps += 1
    assert steps > 30


@pytest.mark.parametrize("journal_url", ALL_JOURNALS, indirect=True)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.depth) for one in (1, 2))]
)
def test_r26_a_source_that_sends_all_again_publishes_nothing_twice(
    author: Author, source: Source, seed: int
) -> None:
    chance = random.Random(seed)
    lossy = LossyJournal(author.journal, chance)
    replica = author.replica(journal=lossy)
    sent = 0
    while sent < 60:
        again = chance.randrange(3)
        group = source.requests(*range(max(1, sent + 1 - again), sent + 1 + chance.randrange(4)))
        answers = [pending.future.exception() for pending in publish(replica, *group)]
        assert {type(error) for error in answers} <= {type(None), DuplicateUnknown}
        sent = source.known().last_sequence
    author.replica().reconcile()
    assert lossy.lost_records
    assert lossy.lost_acknowledgements
    assert sorted(source.journaled()) == list(range(1, sent + 1))


@pytest.mark.proof
def test_r5_the_checker_catches_a_publisher_that_forgets_sequences(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "advance", lambda *_: None)
    replica = author.replica()
    publish(replica, *source.requests(1, 2))
    publish(replica, *source.requests(1, 2))
    assert source.journaled() == [1, 2, 1, 2]


def test_a_repeated_sequence_gets_the_package_of_the_first_try(
    author: Author, source: Source
) -> None:
    replica = author.replica()
    [first] = publish(replica, source.request(5))
    [again] = publish(author.replica(), source.request(5))
    made, repeated = first.future.result(), again.future.result()
    assert (repeated.package_id, repeated.offset) == (made.package_id, made.offset)
    assert (made.repeated, repeated.repeated) == (False, True)


def test_a_sequence_that_was_skipped_is_not_published_later(author: Author, source: Source) -> None:
    replica = author.replica()
    publish(replica, *source.requests(5, 9))
    assert isinstance(outcome(replica, source.request(7)), SequencePassed)
    assert source.journaled() == [5, 9]


def test_a_group_with_duplicates_keeps_what_is_new(author: Author, source: Source) -> None:
    other = Source(author, "other")
    other.register()
    replica = author.replica()
    publish(replica, *source.requests(1, 2, 3))
    requested = [*source.requests(2, 3, 4), *other.requests(1), request("/p1"), source.request(5)]
    group = publish(replica, *requested)
    repeated = [pending.future.result().repeated for pending in group]
    assert repeated == [True, True, False, False, False, False]
    assert source.journaled() == [1, 2, 3, 4, 5]
    assert other.journaled() == [1]


def test_what_is_behind_a_refused_request_waits_for_its_source(
    author: Author, source: Source
) -> None:
    other = Source(author, "other")
    other.register()
    replica = author.replica()
    requested = [source.request(1), source.request(2, "/none"), source.request(3), other.request(3)]
    group = publish(replica, *requested)
    errors = [type(pending.future.exception()) for pending in group]
    assert errors == [type(None), PathMissing, EarlierRefused, type(None)]
    publish(replica, *source.requests(2, 3))
    assert source.journaled() == [1, 2, 3]


def test_what_is_behind_one_that_nobody_waits_for_any_more_is_refused(
    author: Author, source: Source
) -> None:
    first = Pending(source.request(1))
    behind = Pending(source.request(2), behind=first)
    assert first.future.cancel()
    author.replica().publish([behind])
    assert isinstance(behind.future.exception(), EarlierRefused)
    assert source.journaled() == []


def test_a_duplicate_is_unknown_until_the_journal_has_confirmed_it(
    author: Author, source: Source
) -> None:
    away = AwayJournal(author.journal)
    replica = author.replica(journal=away)
    publish(replica, source.request(1))
    away.away = True
    first, second = publish(replica, *source.requests(2, 3))
    assert first.future.result().offset is None
    for sequence in (2, 3):
        assert isinstance(outcome(replica, source.request(sequence)), DuplicateUnknown)
    assert taken(replica, source.request(1))
    known = source.known()
    assert (known.last_sequence, known.last_persisted) == (3, 1)
    away.away = False
    eventually(replica.reconcile)
    [again] = publish(replica, source.request(3))
    assert again.future.result().package_id == second.future.result().package_id
    assert again.future.result().offset is not None
    assert source.journaled() == [1, 2, 3]
    assert source.known().last_persisted == 3


def test_r26_nothing_is_new_before_the_journal_was_asked(author: Author, source: Source) -> None:
    away = AwayJournal(author.journal)
    away.away = True
    replica = author.replica(journal=away)
    assert isinstance(outcome(replica, source.request(1)), DuplicateUnknown)
    [plain] = publish(replica, request("/p0"))
    assert plain.future.result().offset is None
    away.away = False
    eventually(replica.reconcile)
    assert taken(replica, source.request(1))
    assert source.journaled() == [1]


def test_a_lost_commit_answer_is_no_duplicate(author: Author, source: Source) -> None:
    """The connection is cut at every step, and the same requests are published again."""
    last = 0
    for steps in range(0, 60, 3):
        last += 1
        pending = Pending(source.request(last))
        fuse = Fuse(steps)
        cut = author.replica(lock=fragile_lock(author, fuse))
        try:
            cut.publish([pending])
        except Crash:
            cut.close()
            author.replica().publish([pending])
        error = pending.future.exception()
        assert error is None or isinstance(error, PackhorseError), error
        assert error is None
    assert source.journaled() == list(range(1, last + 1))
