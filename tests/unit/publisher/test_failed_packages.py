"""What of a package that was given up is distributed again (R18)."""

from datetime import UTC, datetime

import pytest

from packhorse.wire.messages import Action, PackageEntry
from packhorse.wire.package_codec import encode_entry
from packhorse_services.publisher.outcomes.error_queue import FailedPackage, PathsUnknown


def _failed(entry: bytes | None) -> FailedPackage:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return FailedPackage("p1", 1, "log", 3, "no", at, 0, "", entry)


@pytest.mark.parametrize(
    "entry",
    [
        PackageEntry("p1", "main", Action.ADD, ("/a",)),
        PackageEntry("p1", "main", Action.ADD, (), deep_paths=("/a",)),
        PackageEntry("p1", "main", Action.TEST, ()),
    ],
)
def test_r18_whatever_it_was_about_is_known(entry: PackageEntry) -> None:
    assert _failed(encode_entry(entry)).to_distribute() == entry


@pytest.mark.parametrize(
    "entry", [None, b"\xff", encode_entry(PackageEntry("p1", "main", Action.ADD, ()))]
)
def test_r18_what_is_not_known_is_asked_for_by_its_paths(entry: bytes | None) -> None:
    with pytest.raises(PathsUnknown, match="POST /distribute"):
        _failed(entry).to_distribute()
