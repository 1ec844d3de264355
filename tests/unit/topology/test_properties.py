"""What an instance announces."""

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from packhorse.topology.properties import (
    HOME,
    HOST,
    LARGEST_TOTAL,
    LARGEST_VALUE,
    LONGEST_NAME,
    MOST_PROPERTIES,
    PID,
    FixedProperties,
    InvalidProperty,
    LocalProperties,
    ProcessProperties,
)


class Failing:
    ranking = 5

    def __init__(self) -> None:
        self.fails = False

    def properties(self) -> Mapping[str, str | None]:
        if self.fails:
            raise RuntimeError("away")
        return {"load": "1"}


def test_the_provider_of_the_higher_ranking_wins_and_none_is_no_property() -> None:
    low = FixedProperties({"a": "low", "b": "low", "c": None}, ranking=1)
    high = FixedProperties({"a": "high", "b": None}, ranking=2)
    assert LocalProperties([low, high]).current() == {"a": "high", "b": "low"}


def test_what_was_set_wins_until_it_is_removed() -> None:
    local = LocalProperties([FixedProperties({"a": "given"}, ranking=99)])
    assert not local.was_set("a")
    local.set("a", "set")
    assert local.was_set("a")
    assert local.current() == {"a": "set"}
    assert local.remove("a")
    assert not local.remove("a")
    assert local.current() == {"a": "given"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "v"),
        ("a b", "v"),
        ("a\n", "v"),
        ("ä", "v"),
        ("n" * (LONGEST_NAME + 1), "v"),
        ("n", "\0"),
        ("n", "\ud800"),
        ("n", "ä" * (LARGEST_VALUE // 2 + 1)),
    ],
)
def test_a_bad_property_is_refused_or_left_out_with_one_warning(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    local = LocalProperties([FixedProperties({name: value, "good": "1"})])
    with pytest.raises(InvalidProperty):
        local.set(name, value)
    with caplog.at_level(logging.WARNING):
        assert local.current() == local.current() == {"good": "1"}
    [reported] = caplog.records
    which, _, why = reported.getMessage().partition(" is left out: ")
    assert which.startswith("the property ")
    assert why


def test_the_largest_are_taken() -> None:
    local = LocalProperties()
    local.set("n" * LONGEST_NAME, "ä" * (LARGEST_VALUE // 2))
    assert len(local.current()) == 1


def test_what_does_not_fit_any_more_is_left_out() -> None:
    values = {f"n{number:02}": "v" * LARGEST_VALUE for number in range(20)}
    local = LocalProperties([FixedProperties(values)])
    taken = local.current()
    assert sum(len(name) + len(value) for name, value in taken.items()) <= LARGEST_TOTAL
    assert list(taken) == sorted(values)[: len(taken)]
    for number in range(15):
        local.set(f"set{number}", "v" * LARGEST_VALUE)
    with pytest.raises(InvalidProperty, match="more than"):
        local.set("one.more", "v" * LARGEST_VALUE)
    assert len(local.current()) == 15


def test_there_are_no_more_than_other_clusters_take(caplog: pytest.LogCaptureFixture) -> None:
    values = {f"n{number:04}": "v" for number in range(MOST_PROPERTIES + 500)}
    local = LocalProperties([FixedProperties(values), FixedProperties({"z": "v"})])
    with caplog.at_level(logging.WARNING):
        assert list(local.current()) == list(local.current()) == sorted(values)[:MOST_PROPERTIES]
    assert len(caplog.records) == 1
    for name in list(values)[:MOST_PROPERTIES]:
        local.set(name, "")
    local.set("n0000", "again")
    with pytest.raises(InvalidProperty, match="at most"):
        local.set("one.more", "")


def test_a_provider_that_fails_keeps_what_it_gave_last(caplog: pytest.LogCaptureFixture) -> None:
    provider = Failing()
    local = LocalProperties([provider])
    assert local.current() == {"load": "1"}
    provider.fails = True
    with caplog.at_level(logging.WARNING):
        assert local.current() == local.current() == {"load": "1"}
    assert len(caplog.records) == 1


def test_a_process_says_where_it_runs_and_may_say_otherwise() -> None:
    says = LocalProperties([ProcessProperties()]).current()
    own = {HOST: socket.gethostname(), HOME: str(Path.cwd()), PID: str(os.getpid())}
    assert says == own
    renamed = LocalProperties([ProcessProperties(), FixedProperties({HOST: "web-1"}, ranking=1)])
    assert renamed.current() == {**own, HOST: "web-1"}
