"""Why a package is left out, in words that are safe to store, and when its import has to fail."""

from dataclasses import replace

import pytest

from packhorse.packages.path_filter import PathFilter
from packhorse.packages.scope import type_of
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse_services.subscriber.journal.selection import Selection

FILTERED = Selection("sub", PathFilter(("/taken",)))


def package(*paths: str, targets: tuple[str, ...] = ()) -> PackageMessage:
    return typed(PackageEntry("id", "main", Action.DELETE, paths, targets=targets))


def typed(entry: PackageEntry) -> PackageMessage:
    return PackageMessage(entry, package_type=type_of(entry))


def test_r35_a_package_for_others_says_for_whom() -> None:
    for count, more in ((5, ""), (7, " and 2 more")):
        targets = tuple(f"sub{number}" for number in range(count))
        named = ", ".join(targets[:5])
        why = Selection("sub").left_out(package(targets=targets))
        assert why == f"it is for {named}{more} alone"
    assert Selection("sub").left_out(package(targets=("other", "sub"))) == ""


def test_r30_names_of_others_are_bounded_and_can_be_stored() -> None:
    why = Selection("sub").left_out(package(targets=("\0" + "x" * 1_000,)))
    assert why == f"it is for {'x' * 79} alone"


def test_r30_a_rule_that_is_named_is_cut() -> None:
    long = "/" + "x" * 1_000
    why = Selection("sub", PathFilter(exclude=(long,))).left_out(package(long))
    assert why.startswith("PACKHORSE_EXCLUDE names /xxx")
    assert len(why) == 500


@pytest.mark.parametrize(
    "bad",
    [
        package("/other/../a"),
        replace(package("/other"), package_type="unknown"),
        typed(PackageEntry("id", "main", Action.DELETE, ("/other",), range_from="/other/a")),
    ],
)
def test_r14_a_package_that_can_not_be_imported_is_not_left_out(bad: PackageMessage) -> None:
    assert FILTERED.left_out(package("/other"))
    assert FILTERED.left_out(bad) == ""
