"""Producers: who may publish under a name, and for how long it is remembered."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.messaging.deduplication import NOTHING, ProducerExpired, ProducerFenced
from packhorse_services.publisher.outbox import producers
from packhorse_services.publisher.outbox.producer_registry import TooManyProducers, UnknownProducer
from packhorse_services.publisher.outbox.producers import SequencePassed
from tests.harness.postgres import waiting_for_locks
from tests.harness.producers import Source, outcome, taken
from tests.harness.publishing import AGENT, Author, publish, request
from tests.harness.tidying import tidy
from tests.harness.waiting import eventually


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
    """Otherwise it would return a last sequence that the older one passes afterwards."""
    number = source.request(1).producer
    assert number is not None
    newer = Source(author)
    with ThreadPoolExecutor(1) as pool, connect(author.database_url, "tests-lock") as lock:
        act_as(lock, BOOKKEEPER)
        producers.judge(lock, "main", [number], verified=True)
        registering = pool.submit(newer.register)
        eventually(lambda: waiting_for_locks(author.database_url, "tests-producers"))
        producers.advance(lock, [number])
        lock.commit()
        assert registering.result(120).last_sequence == 1


def test_an_epoch_that_nobody_has_is_refused(author: Author, source: Source) -> None:
    replica = author.replica()
    ahead = source.request(1, epoch=source.epoch + 1)
    assert isinstance(outcome(replica, ahead), ProducerExpired)
    stranger = Source(author, "stranger")
    assert isinstance(outcome(replica, stranger.request(1, epoch=1)), ProducerExpired)
    with pytest.raises(UnknownProducer):
        stranger.known()


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
    tidy(author, producer_days=30)
    assert isinstance(outcome(replica, source.request(2)), ProducerExpired)
    assert isinstance(outcome(replica, source.request(3)), ProducerExpired)
    assert taken(replica, other.request(3))
    old = source.epoch
    registered = source.register()
    assert registered.last_sequence == 2, "the outbox knows it still"
    assert isinstance(outcome(replica, source.request(3, epoch=old)), ProducerFenced)
    assert taken(replica, source.request(3))
    assert source.journaled() == [1, 2, 3]


def test_a_producer_that_publishes_or_registers_does_not_expire(
    author: Author, source: Source
) -> None:
    other = Source(author, "other")
    other.register()
    for one in (source, other):
        age(author, one.name, 2)
    publish(author.replica(), source.request(1))
    other.register()
    tidy(author, producer_days=1)
    assert source.known().epoch == source.epoch
    assert other.known().epoch == other.epoch


def test_what_the_log_has_forgotten_of_an_expired_producer_is_forgotten(
    author: Author, source: Source
) -> None:
    publish(author.replica(), *source.requests(1, 2))
    publish(author.replica(), request("/p0"))
    author.journal.truncate(author.topics.package, author.journaled()[-1].offset)
    tidy(author, producer_days=1)
    assert isinstance(outcome(author.replica(), source.request(2)), SequencePassed)
    age(author, source.name, 2)
    tidy(author, producer_days=1)
    assert source.register().last_sequence == NOTHING


def test_producers_expire_in_bounded_batches(author: Author) -> None:
    for number in range(3):
        Source(author, f"s{number}").register()
        age(author, f"s{number}", 2)
    with connect(author.database_url, "tests") as connection:
        assert producers.forget(connection, AGENT, 86_400, 1e9, 2) == 2
        assert producers.forget(connection, AGENT, 86_400, 1e9, 2) == 1


def test_the_number_of_producers_is_bounded(author: Author) -> None:
    kept = [Source(author, name, limit=2, caller=name) for name in ("one", "two")]
    for one in kept:
        one.register()
    with pytest.raises(TooManyProducers):
        Source(author, "three", limit=2, caller="three").register()
    assert kept[0].register().epoch > kept[1].epoch
    age(author, "two", 2)
    tidy(author, producer_days=1)
    Source(author, "three", limit=2, caller="three").register()


def test_one_caller_leaves_names_to_the_others(author: Author) -> None:
    for name in ("one", "two"):
        Source(author, name, limit=20).register()
    with pytest.raises(TooManyProducers, match="2 are the most that one caller may have"):
        Source(author, "three", limit=20).register()
    Source(author, "two", limit=20).register()
    Source(author, "three", limit=20, caller="other").register()


def test_callers_have_producers_of_their_own(author: Author, source: Source) -> None:
    publish(author.replica(), source.request(1))
    rows = author.rows("SELECT agent, caller, name, last_sequence FROM bookkeeping.producer")
    assert rows == [("main", "tester", "import", 1)]
