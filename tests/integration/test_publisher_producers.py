"""R5 for replayable sources: each (producer, sequence) is in the journal once, whatever happens."""

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.db.connect import connect, open_pool
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.errors import PackhorseError
from packhorse.messaging.deduplicated import DuplicateUnknown
from packhorse.messaging.deduplication import NOTHING, ProducerExpired, ProducerFenced
from packhorse.messaging.open import open_journal
from packhorse.packages.build import PathMissing
from packhorse.wire.topics import Topics
from packhorse_services.publisher import producers
from packhorse_services.publisher.distribute import DistributionRequest
from packhorse_services.publisher.housekeeping import Housekeeping
from packhorse_services.publisher.pending import Pending
from packhorse_services.publisher.producer_registry import TooManyProducers, UnknownProducer
from packhorse_services.publisher.producers import EarlierRefused, SequencePassed
from packhorse_services.publisher.publishing import Publishing
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.producers import Source
from tests.harness.publishing import (
    Author,
    AwayJournal,
    Crash,
    FragileJournal,
    Fuse,
    LossyJournal,
    fragile_slot,
    page,
    publish,
    request,
)
from tests.harness.waiting import eventually

ALL_JOURNALS = ["memory", "sql", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(params=["memory", "sql"])
def journal_url(request: pytest.FixtureRequest, databases: Databases, tmp_path: Path) -> str:
    match request.param:
        case "sql":
            return databases.new("journal")
        case "kafka":
            broker: RunningKafka = request.getfixturevalue("kafka")
            return broker.url
    return f"memory://{tmp_path}"


@pytest.fixture
def author(database_url: str, journal_url: str, tmp_path: Path) -> Iterator[Author]:
    journal = open_journal(journal_url, client_name="tests")
    topics = Topics.prefixed(f"producers-{time.time_ns()}")
    author = Author(database_url, journal, open_blobs(str(tmp_path / "blobs")), topics)
    author.write(*(page(f"/p{number}") for number in range(3)))
    yield author
    author.close()
    journal.close()


@pytest.fixture
def source(author: Author) -> Source:
    source = Source(author)
    source.register()
    return source


def crash_once(
    author: Author, journal_url: str, requests: Sequence[DistributionRequest], steps: int
) -> bool:
    """Publish with a process that dies after `steps`; tell whether it died."""
    fuse = Fuse(steps)
    journal = open_journal(journal_url, client_name="dying")
    replica = author.replica(journal=FragileJournal(journal, fuse), slot=fragile_slot(author, fuse))
    try:
        publish(replica, *requests)
    except Crash:
        pass
    finally:
        replica.close()
        journal.close()  # what it has sent arrives
    return fuse.blown


def outcome(publishing: Publishing, asked: DistributionRequest) -> object:
    """Publish one request; return its answer, or the error that refused it."""
    [pending] = publish(publishing, asked)
    return pending.future.exception() or pending.future.result()


def replay(publishing: Publishing, source: Source, last: int) -> None:
    """Do what a source does after any fault: register, and send what is behind the last."""
    known = source.register()
    for sequence in range(max(known.last_sequence + 1, 1), last + 1):
        eventually(lambda sequence=sequence: taken(publishing, source.request(sequence)))  # type: ignore[misc]


def taken(publishing: Publishing, asked: DistributionRequest) -> bool:
    answer = outcome(publishing, asked)
    assert not isinstance(answer, Exception) or isinstance(answer, DuplicateUnknown), answer
    return not isinstance(answer, Exception)


def test_r5_a_crash_at_any_step_leaves_each_sequence_in_the_journal_once(
    author: Author, journal_url: str, source: Source
) -> None:
    survivor = author.replica()
    steps = last = 0
    while crash_once(author, journal_url, source.requests(last + 1, last + 2), steps):
        last += 2
        survivor.settle()
        replay(survivor, source, last)
        assert source.journaled() == list(range(1, last + 1)), steps
        assert source.known().last_sequence == source.known().last_persisted == last
        steps += 1
    assert steps > 30


@pytest.mark.parametrize("journal_url", ALL_JOURNALS, indirect=True)
@pytest.mark.parametrize("seed", range(3))
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
    author.replica().settle()
    assert lossy.lost_records
    assert lossy.lost_acknowledgements
    assert sorted(source.journaled()) == list(range(1, sent + 1))


def test_r5_the_checker_catches_a_publisher_that_forgets_sequences(
    author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "advance", lambda *_: None)
    replica = author.replica()
    publish(replica, *source.requests(1, 2))
    publish(replica, *source.requests(1, 2))
    assert source.journaled() == [1, 2, 1, 2]


def test_a_repeated_sequence_is_told_the_package_of_the_first_try(
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
    asked = [*source.requests(2, 3, 4), *other.requests(1), request("/p1"), source.request(5)]
    group = publish(replica, *asked)
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
    asked = [source.request(1), source.request(2, "/none"), source.request(3), other.request(3)]
    group = publish(replica, *asked)
    errors = [type(pending.future.exception()) for pending in group]
    assert errors == [type(None), PathMissing, EarlierRefused, type(None)]
    publish(replica, *source.requests(2, 3))
    assert source.journaled() == [1, 2, 3]


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
    eventually(replica.settle)
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
    eventually(replica.settle)
    assert taken(replica, source.request(1))
    assert source.journaled() == [1]


def restored(author: Author, backup: str) -> Author:
    return Author(backup, author.journal, author.blobs, author.topics)


def backed_up(databases: Databases, author: Author) -> str:
    author.close()
    return databases.copy(author.database_url.rpartition("/")[2])


@pytest.mark.parametrize("journal_url", ALL_JOURNALS, indirect=True)
def test_r26_a_restored_author_finds_the_sequences_that_it_does_not_know(
    databases: Databases, author: Author, source: Source
) -> None:
    publish(author.replica(), *source.requests(1, 2))
    backup = backed_up(databases, author)
    publish(author.replica(), *source.requests(3, 4, 9))
    late = Source(author, "late")
    late.register()
    publish(author.replica(), *late.requests(1, 2))
    restored_author = restored(author, backup)
    replica = restored_author.replica()
    replica.settle()
    for one in (Source(restored_author), Source(restored_author, "late")):
        old = one.known()
        assert old.last_sequence == {"import": 9, "late": 2}[one.name]
        assert one.register().epoch > late.epoch
        assert isinstance(outcome(replica, one.request(old.last_sequence)), SequencePassed)
        publish(replica, one.request(old.last_sequence + 1))
    restored_author.close()
    assert source.journaled() == [1, 2, 3, 4, 9, 10]
    assert late.journaled() == [1, 2, 3]


def test_r26_a_backup_from_before_the_first_package_finds_them_too(
    databases: Databases, author: Author, source: Source
) -> None:
    author.replica().settle()
    backup = backed_up(databases, author)
    publish(author.replica(), *source.requests(1, 2))
    restored_author = restored(author, backup)
    replica = restored_author.replica()
    replica.settle()
    replay(replica, Source(restored_author), 3)
    restored_author.close()
    assert source.journaled() == [1, 2, 3]


def test_r26_the_checker_catches_a_restored_author_that_does_not_look(
    databases: Databases, author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "catch_up", lambda *_: None)
    publish(author.replica(), *source.requests(1))
    backup = backed_up(databases, author)
    publish(author.replica(), *source.requests(2))
    restored_author = restored(author, backup)
    publish(restored_author.replica(), *source.requests(2))
    restored_author.close()
    assert source.journaled() == [1, 2, 2]


def test_r26_records_that_are_sent_late_name_their_producer(author: Author, source: Source) -> None:
    lossy = LossyJournal(author.journal, random.Random(0), faults=1.0)
    publish(author.replica(journal=lossy), *source.requests(1, 2, 3))
    author.replica().settle()
    assert sorted(source.journaled()) == [1, 2, 3]


def test_a_newer_registration_fences_the_older_at_every_replica(
    author: Author, source: Source
) -> None:
    first, second = author.replica(), author.replica()
    publish(first, source.request(1))
    newer = Source(author)
    assert newer.register().last_sequence == 1
    for replica in (first, second):
        assert isinstance(outcome(replica, source.request(2)), ProducerFenced)
        assert isinstance(outcome(replica, source.request(1)), ProducerFenced)
    assert taken(second, newer.request(2))
    assert source.journaled() == [1, 2]


def test_a_registration_waits_for_a_group_that_is_being_committed(
    author: Author, source: Source
) -> None:
    """Otherwise it would tell a last sequence that the older one passes afterwards."""
    number = source.request(1).producer
    assert number is not None
    newer = Source(author)
    with ThreadPoolExecutor(1) as pool, connect(author.database_url, "tests-slot") as slot:
        act_as(slot, BOOKKEEPER)
        producers.judge(slot, "main", [number], verified=True)
        registering = pool.submit(newer.register)
        eventually(lambda: waits_for_a_lock(author))
        producers.advance(slot, [number])
        slot.commit()
        assert registering.result(30).last_sequence == 1


def waits_for_a_lock(author: Author) -> bool:
    return bool(
        author.rows(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'tests-producers' AND wait_event_type = 'Lock'"
        )
    )


def test_an_epoch_that_nobody_has_is_refused(author: Author, source: Source) -> None:
    replica = author.replica()
    ahead = source.request(1, epoch=source.epoch + 1)
    assert isinstance(outcome(replica, ahead), ProducerExpired)
    stranger = Source(author, "stranger")
    assert isinstance(outcome(replica, stranger.request(1, epoch=1)), ProducerExpired)
    with pytest.raises(UnknownProducer):
        stranger.known()


def tidy(author: Author, keep_s: float) -> None:
    with open_pool(author.database_url, "tests") as pool:
        Housekeeping(
            pool, author.journal, author.topics.package, keep_keys_s=1e9, keep_producers_s=keep_s
        ).tidy()


def age(author: Author, name: str, days: int) -> None:
    with connect(author.database_url, "tests") as connection:
        connection.execute(
            "UPDATE bookkeeping.producer SET used_at = used_at - make_interval(days => %s) "
            "WHERE name = %s",
            (days, name),
        )


def test_an_unused_producer_expires_and_must_register_anew(author: Author, source: Source) -> None:
    replica = author.replica()
    other = Source(author, "other")
    for one in (source, other):
        one.register()
        publish(replica, *one.requests(1, 2))
    age(author, source.name, 31)
    age(author, other.name, 29)
    tidy(author, 30 * 86_400)
    assert isinstance(outcome(replica, source.request(2)), ProducerExpired)
    assert isinstance(outcome(replica, source.request(3)), ProducerExpired)
    assert taken(replica, other.request(3))
    old = source.epoch
    registered = source.register()
    assert registered.last_sequence == 2, "the outbox knows it still"
    assert isinstance(outcome(replica, source.request(3, epoch=old)), ProducerFenced)
    assert taken(replica, source.request(3))
    assert source.journaled() == [1, 2, 3]


def test_what_the_log_has_forgotten_of_an_expired_producer_is_forgotten(
    author: Author, source: Source
) -> None:
    publish(author.replica(), *source.requests(1, 2))
    publish(author.replica(), request("/p0"))
    author.journal.truncate(author.topics.package, author.journaled()[-1].offset)
    tidy(author, 86_400)
    assert isinstance(outcome(author.replica(), source.request(2)), SequencePassed)
    age(author, source.name, 2)
    tidy(author, 86_400)
    assert source.register().last_sequence == NOTHING


def test_producers_expire_in_bounded_batches(author: Author) -> None:
    for number in range(3):
        Source(author, f"s{number}").register()
        age(author, f"s{number}", 2)
    with connect(author.database_url, "tests") as connection:
        assert producers.forget(connection, 86_400, 2) == 2
        assert producers.forget(connection, 86_400, 2) == 1


def test_the_number_of_producers_is_bounded(author: Author) -> None:
    kept = [Source(author, name, limit=2) for name in ("one", "two")]
    for one in kept:
        one.register()
    with pytest.raises(TooManyProducers):
        Source(author, "three", limit=2).register()
    assert kept[0].register().epoch > kept[1].epoch
    age(author, "two", 2)
    tidy(author, 86_400)
    Source(author, "three", limit=2).register()


def test_callers_have_producers_of_their_own(author: Author, source: Source) -> None:
    publish(author.replica(), source.request(1))
    rows = author.rows("SELECT agent, caller, name, last_sequence FROM bookkeeping.producer")
    assert rows == [("main", "tester", "import", 1)]


def test_a_lost_commit_answer_is_no_duplicate(author: Author, source: Source) -> None:
    """The connection is cut at every step, and the same requests are published again."""
    last = 0
    for steps in range(0, 60, 3):
        last += 1
        pending = Pending(source.request(last))
        fuse = Fuse(steps)
        cut = author.replica(slot=fragile_slot(author, fuse))
        try:
            cut.publish([pending])
        except Crash:
            cut.close()
            author.replica().publish([pending])
        error = pending.future.exception()
        assert error is None or isinstance(error, PackhorseError), error
        assert error is None
    assert source.journaled() == list(range(1, last + 1))
