"""The checkers catch what they are there for: each on a history with one thing wrong."""

import dataclasses

import pytest

from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from tests.chaos import checks
from tests.chaos.ledger import Sample

_PAGE = "/content/shared/00"


def _delivered(offset: int, version: int) -> checks.Delivered:
    entry = PackageEntry(f"p{offset}", "main", Action.ADD, (_PAGE,), sequence=offset, epoch=1)
    return checks.Delivered(offset, PackageMessage(entry), {_PAGE: {"version": version}})


HISTORY = checks.History([_delivered(1, 1), _delivered(2, 2), _delivered(3, 3)])
ACCEPTED: dict[str, int | None] = {"p1": 1, "p2": None, "p3": 3}


def test_a_right_history_passes() -> None:
    checks.check_journal(HISTORY, ACCEPTED)
    checks.check_order(HISTORY)
    checks.check_samples(HISTORY, [Sample(-1, {}), Sample(2, {_PAGE: {"version": 2}})])
    checks.check_once({"/content/once/1": 1}, ["/content/once/1"])


@pytest.mark.parametrize(
    "accepted",
    [
        {**ACCEPTED, "lost": 4},
        {"p1": 1, "p2": 2},
        {**ACCEPTED, "p3": 2},
    ],
    ids=["lost", "nobody's", "wrong offset"],
)
def test_r5_a_wrong_journal_is_caught(accepted: dict[str, int | None]) -> None:
    with pytest.raises(AssertionError):
        checks.check_journal(HISTORY, accepted)


def test_r5_a_package_under_two_numbers_is_caught() -> None:
    twice = checks.History([*HISTORY.packages, dataclasses.replace(_delivered(1, 3), offset=4)])
    with pytest.raises(AssertionError, match="two numbers"):
        checks.check_journal(twice, ACCEPTED)


def test_r6_an_older_version_behind_a_newer_one_is_caught() -> None:
    stale = checks.History([*HISTORY.packages, _delivered(4, 2)])
    with pytest.raises(AssertionError, match="goes back"):
        checks.check_order(stale)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(2, {_PAGE: {"version": 1}}),
        Sample(1, {_PAGE: {"version": 2}}),
        Sample(1, {_PAGE: {"version": 1}, "/content/shared/01": {}}),
        Sample(3, {}),
    ],
    ids=["offset first", "content first", "extra", "missing"],
)
def test_r8_content_that_is_not_at_its_offset_is_caught(sample: Sample) -> None:
    with pytest.raises(AssertionError, match="at offset"):
        checks.check_samples(HISTORY, [sample])


@pytest.mark.parametrize("counts", [{"a": 2}, {}, {"a": 1, "b": 1}], ids=["twice", "lost", "extra"])
def test_r8_a_package_imported_twice_or_never_is_caught(counts: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        checks.check_once(counts, ["a"])
