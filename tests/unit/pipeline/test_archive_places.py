"""Where readers stand: holes, starts, distances, and what a limited batch takes."""

import pytest

from packhorse.messaging.api import Bounds
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.journal_source import _limited
from packhorse_services.pipeline.archive.places import Hole

EXTENT = {"a": {0: Bounds(5, 9)}, "b": {0: Bounds(0, 3), 1: Bounds(2, 2)}}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"a": {0: 5}, "b": {0: 0, 1: 2}}, []),
        ({"a": {0: 9}, "b": {0: 3, 1: 2}}, []),
        ({"a": {0: 4}, "b": {1: 2}}, [Hole("a", 0, 4, 5)]),
        ({}, [Hole("a", 0, 0, 5), Hole("b", 1, 0, 2)]),
    ],
)
def test_r2_a_hole_lies_between_a_place_and_the_oldest_offset(
    places: at.Places, expected: list[Hole]
) -> None:
    assert at.holes(EXTENT, places) == expected


def test_a_hole_says_what_is_missing() -> None:
    assert str(Hole("a", 0, 4, 9)) == "a/0 lacks offsets 4 to 8, and goes on at 9"


def test_a_reader_starts_at_its_place_or_at_the_oldest() -> None:
    assert at.starts(EXTENT, {"a": {0: 7}, "b": {0: 1}}) == {"a": {0: 7}, "b": {0: 1, 1: 2}}


def test_a_journal_that_ends_before_a_place_is_reported() -> None:
    assert at.beyond(EXTENT, {"a": {0: 10}, "b": {0: 3}}) == [("a", 0)]


def test_the_furthest_place_counts() -> None:
    assert at.furthest({"a": {0: 1}}, {"a": {0: 3, 1: 1}}, {"b": {0: 2}}) == {
        "a": {0: 3, 1: 1},
        "b": {0: 2},
    }


def test_places_survive_json() -> None:
    places = {"a": {0: 7}, "b": {0: 1, 1: 2}}
    assert at.from_document({"a": {"0": 7}, "b": {"0": 1, "1": 2}}) == places
    assert at.as_json(places) == '{"a": {"0": 7}, "b": {"0": 1, "1": 2}}'


@pytest.mark.parametrize("foreign", [None, 3, [], {"sourceVersion": 1}, {"a": {"x": 1}}])
def test_what_another_source_keeps_is_no_places(foreign: object) -> None:
    with pytest.raises(ValueError, match=r"no JSON object|invalid literal"):
        at.from_document(foreign)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 100])
def test_a_limited_batch_goes_on_and_takes_no_more(rows: int) -> None:
    start, end = at.starts(EXTENT, {}), at.ends(EXTENT)
    taken = _limited(start, end, rows)
    assert 0 < at.distance(start, taken) <= rows
    assert at.distance(taken, end) == at.distance(start, end) - at.distance(start, taken)
    while at.distance(taken, end):
        before, taken = taken, _limited(taken, end, rows)
        assert at.distance(before, taken) > 0


def test_versions_grow_with_the_offsets_and_tell_partitions_apart() -> None:
    ends = [{"a": {0: 5, 1: 0}}, {"a": {0: 5, 1: 1}}, {"a": {0: 9, 1: 1}}]
    versions = [at.version_of(one) for one in ends]
    assert versions == sorted(set(versions))
    assert at.version_of({"a": {0: 6, 1: 4}}) != at.version_of({"a": {0: 5, 1: 5}})
    assert at.version_of(at.from_document(at.as_document(ends[2]))) == versions[2]
    assert at.version_of({"a": {0: 2**44}}) < 2**63
