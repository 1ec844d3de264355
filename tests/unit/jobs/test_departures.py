"""Who has left for good: time is a parameter."""

from packhorse.jobs.ledger.departures import Absences


def test_one_who_is_away_for_long_has_left() -> None:
    absences = Absences(600.0)
    assert absences.departed({"a", "b"}, {"b"}, 0.0) == frozenset()
    assert absences.departed({"a", "b"}, {"b"}, 599.9) == frozenset()
    assert absences.departed({"a", "b"}, {"b"}, 600.0) == {"a"}


def test_who_was_seen_meanwhile_begins_anew() -> None:
    absences = Absences(600.0)
    absences.departed({"a"}, set(), 0.0)
    absences.departed({"a"}, {"a"}, 500.0)
    assert absences.departed({"a"}, set(), 700.0) == frozenset()
    assert absences.departed({"a"}, set(), 1_300.0) == {"a"}


def test_who_is_no_longer_named_is_forgotten() -> None:
    absences = Absences(600.0)
    absences.departed({"a"}, set(), 0.0)
    absences.departed(set(), set(), 500.0)
    assert absences.departed({"a"}, set(), 700.0) == frozenset()
