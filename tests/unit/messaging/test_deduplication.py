"""Seed 004: which message of which producer is in the log already."""

import pytest

from packhorse.messaging.deduplication import (
    Deduplication,
    DeduplicationVerdict,
    ProducerExpired,
    ProducerFenced,
    TooManyActiveProducers,
)


def test_a_sequence_above_all_is_new_and_unknown_until_it_is_persisted() -> None:
    state = Deduplication()
    assert state.check("p", 5) is DeduplicationVerdict.NOT_DUP
    assert state.check("p", 5) is DeduplicationVerdict.UNKNOWN
    state.persisted("p", 5)
    assert state.check("p", 5) is DeduplicationVerdict.DUP


def test_equal_is_a_duplicate_as_the_seeds_code_says() -> None:
    state = Deduplication()
    state.persisted("p", 7)
    verdicts = {sequence: state.check("p", sequence) for sequence in (6, 7, 8)}
    assert verdicts == {
        6: DeduplicationVerdict.DUP,
        7: DeduplicationVerdict.DUP,
        8: DeduplicationVerdict.NOT_DUP,
    }


def test_a_reset_after_a_failure_lets_the_same_sequence_in_again() -> None:
    state = Deduplication()
    state.persisted("p", 1)
    state.check("p", 2)
    state.reset("p")
    assert state.check("p", 1) is DeduplicationVerdict.DUP
    assert state.check("p", 2) is DeduplicationVerdict.NOT_DUP


def test_a_newer_epoch_fences_the_older_and_goes_on_with_its_sequences() -> None:
    state = Deduplication()
    state.persisted("p", 9, epoch=1)
    assert state.check("p", 9, epoch=2) is DeduplicationVerdict.DUP
    assert state.check("p", 10, epoch=2) is DeduplicationVerdict.NOT_DUP
    with pytest.raises(ProducerFenced, match="register again"):
        state.check("p", 11, epoch=1)


def test_a_forgotten_name_is_refused_until_it_has_a_newer_epoch() -> None:
    state = Deduplication()
    state.persisted("p", 9, epoch=3)
    assert state.expire(1_000, idle_ms=500) == []
    assert state.expire(1_500, idle_ms=500) == ["p"]
    with pytest.raises(ProducerExpired):
        state.check("p", 10, epoch=3)
    assert state.check("p", 10, epoch=4) is DeduplicationVerdict.NOT_DUP


def test_a_producer_with_a_message_on_its_way_is_never_forgotten() -> None:
    state = Deduplication()
    state.check("p", 9)
    state.expire(0, idle_ms=10)
    assert state.expire(100, idle_ms=10) == []
    assert state.check("p", 9) is DeduplicationVerdict.UNKNOWN


def test_no_more_producers_than_allowed_and_an_active_one_never_makes_room() -> None:
    state = Deduplication(producers=2)
    state.check("a", 1)
    state.check("b", 1)
    with pytest.raises(TooManyActiveProducers):
        state.check("c", 1)
    assert state.check("a", 2) is DeduplicationVerdict.NOT_DUP


def test_a_log_with_more_producers_than_allowed_leaves_the_last_used_ones() -> None:
    state = Deduplication(producers=2)
    for sequence, name in enumerate(("a", "b", "a", "c")):
        state.persisted(name, sequence, epoch=ord(name))
    assert set(state.snapshot().producers) == {"a", "c"}
    with pytest.raises(ProducerExpired):
        state.check("b", 1, epoch=ord("b"))


def test_after_a_restart_the_last_used_ones_are_those_of_the_snapshot_too() -> None:
    state = Deduplication(producers=2)
    for now, name in enumerate(("b", "a")):
        state.persisted(name, 1, epoch=now + 1)
        state.expire(now, idle_ms=1_000)
    restored = Deduplication(producers=2)
    restored.restore(state.snapshot())
    restored.persisted("c", 1, epoch=3)
    assert set(restored.snapshot().producers) == {"a", "c"}


def test_r30_a_log_of_very_many_names_takes_no_more_than_the_table() -> None:
    state = Deduplication(producers=1_000)
    for number in range(20_000):
        state.persisted(f"p{number}", number)
    assert 900 <= len(state.snapshot().producers) <= 1_000
    assert state.last_sequence("p19999") == 19_999


def test_a_snapshot_holds_what_is_persisted_and_nothing_that_was_pushed() -> None:
    state = Deduplication()
    state.persisted("p", 4, epoch=2)
    state.check("p", 5, epoch=2)
    restored = Deduplication()
    restored.restore(state.snapshot())
    assert restored.last_sequence("p") == 4
    assert restored.check("p", 5, epoch=2) is DeduplicationVerdict.NOT_DUP
    with pytest.raises(ProducerFenced):
        restored.check("p", 6, epoch=1)


def test_nothing_is_known_of_a_producer_before_its_first_message_is_in_the_log() -> None:
    state = Deduplication()
    state.check("p", 5)
    assert state.last_sequence("p") is None
    assert state.last_sequence("other") is None
