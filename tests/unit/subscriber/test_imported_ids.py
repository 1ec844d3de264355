"""What is known of repeats: by the ids that were imported lately, and by the log behind (R31)."""

from collections.abc import Iterable, Sequence

import pytest

from packhorse.messaging.api import Outgoing, Record, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.wire.messages import Action, PackageEntry, PackageMessage, Status
from packhorse.wire.package_codec import AGENT_HEADER, PACKAGE_ID_HEADER
from packhorse_services.subscriber.importing.imported_ids import ImportedIds, earlier_in
from packhorse_services.subscriber.journal.arrivals import Arrival, Mark
from packhorse_services.subscriber.journal.grouping import Group
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.journal.sequences import HighWater
from tests.unit.subscriber.given_rows import GivenRows


class Log:
    """Packages by their offsets, and the ranges that were read of them."""

    def __init__(self, packages: dict[int, str], agent: str = "main") -> None:
        self._packages, self._agent = packages, agent.encode()
        self.read: list[tuple[int, int]] = []

    def __call__(self, start: int, end: int) -> Iterable[Record]:
        self.read.append((start, end))
        for offset, package_id in self._packages.items():
            if start <= offset < end:
                headers = {AGENT_HEADER: self._agent, PACKAGE_ID_HEADER: package_id.encode()}
                yield Record("packages", 0, offset, 0, None, headers, b"")


def position(offset: int, started: int = -1, epoch: int = 1) -> Position:
    return Position("main", "journal", epoch, Mark(offset, ""), started)


def group(*repeats: str, fresh: Sequence[str] = ()) -> Group:
    ids = (*repeats, *fresh)
    marks = [Mark(90_000 + number, package_id) for number, package_id in enumerate(ids)]
    new = [
        (mark, PackageMessage(PackageEntry(mark.package_id, "main", Action.TEST)))
        for mark in marks[len(repeats) :]
    ]
    return Group([Arrival(mark, None) for mark in marks], new, HighWater({}))


def duplicates(
    imported: ImportedIds, at: Position, repeated: Group, *not_imported: int
) -> list[str]:
    """Return the ids of what is reported as a duplicate."""
    statuses = GivenRows(*((offset,) for offset in not_imported))
    found = imported.duplicates(statuses.connection, at, repeated)
    assert all(one.status is Status.DUPLICATE for one in found)
    return [one.mark.package_id for one in found]


def test_r31_a_repeat_of_what_was_imported_or_is_now_is_no_duplicate() -> None:
    imported = ImportedIds()
    imported.add(["a"])
    assert duplicates(imported, position(5), group("a", "b", "c", fresh=["b"])) == ["c"]


def test_r30_so_many_ids_are_kept_and_no_more() -> None:
    imported = ImportedIds()
    imported.add(str(number) for number in range(20_001))
    assert duplicates(imported, position(5), group("0", "1", "20000")) == ["0"]


def test_r31_what_was_imported_before_the_start_is_looked_up_in_the_log() -> None:
    log = Log({4: "a", 700: "b", 900: "cleared"})
    imported = ImportedIds(log)
    repeated = group("a", "b", "cleared")
    assert duplicates(imported, position(1_000), repeated, 900) == ["cleared"]
    assert log.read == [(501, 1_001), (1, 501), (0, 1)]
    assert duplicates(imported, position(1_100), repeated, 900) == ["cleared"]
    assert len(log.read) == 3, "what was looked up is not read again"
    duplicates(imported, position(1_100, epoch=2), repeated, 900)
    assert log.read[3] == (601, 1_101), "another worker may have imported since"


def test_r31_the_log_is_read_as_far_as_it_is_needed_and_it_tells_something() -> None:
    log = Log({80_000: "late", 49_000: "too far"})
    imported = ImportedIds(log)
    assert duplicates(imported, position(80_100), group("late")) == []
    assert log.read == [(79_601, 80_101)]
    assert duplicates(imported, position(80_100), group("too far")) == ["too far"]
    assert log.read[-1][0] == 80_101 - 20_000
    started = Log({10: "before", 20: "behind"})
    repeated = group("before", "behind")
    assert duplicates(ImportedIds(started), position(100, started=15), repeated) == ["before"]


def test_r31_another_agents_package_is_not_imported() -> None:
    assert duplicates(ImportedIds(Log({4: "a"}, "other")), position(5), group("a")) == ["a"]


@pytest.mark.parametrize("start", [0, 2, 3])
def test_what_the_log_has_forgotten_is_not_asked_for(start: int) -> None:
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec("packages")])
    for _ in range(5):
        journal.append("packages", Outgoing(b"x")).result(120)
    journal.truncate("packages", 2)
    found = [record.offset for record in earlier_in(journal, "packages")(start, 4)]
    assert found == list(range(max(start, 2), 4))
