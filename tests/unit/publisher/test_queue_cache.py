"""R15, R17: the queue cache against a plain list, whatever is appended, fetched, trimmed, cut."""

import secrets
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from prometheus_client import REGISTRY

from packhorse.messaging.api import Record
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.publisher.queues.cache import columns
from packhorse_services.publisher.queues.cache.columns import ColumnSegment
from packhorse_services.publisher.queues.cache.filling import add_rows, rows_of
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from tests.harness.depth import examples
from tests.unit.publisher.package_records import NOW, package_record

paths = st.lists(st.sampled_from(["/a", "/a/b", "/\U0001f40e", "/" + "x" * 300]), max_size=3)
entries = st.builds(
    PackageEntry,
    package_id=st.one_of(
        st.builds(
            "dstrpck-{}-{:016x}".format,
            st.integers(1, 2 * NOW) | st.integers(NOW - 40_000, NOW + 40_000),
            st.integers(0, 2**64 - 1),
        ),
        st.text(max_size=20),
        st.just(f"dstrpck-{NOW}-00000000-0000-4000-8000-000000000000"),
    ),
    publisher_agent=st.sampled_from(["main", "main", "other"]),
    action=st.sampled_from(Action),
    paths=paths.map(tuple),
    deep_paths=paths.map(tuple),
    user=st.sampled_from(["alice", "bob", ""]),
    body_length=st.sampled_from([0, 5_000, 2**32, 2**40]),
    targets=st.sampled_from([(), (), ("sub1",), ("sub1", "sub2")]),
)


def shown(records: Sequence[tuple[Record, PackageEntry]], after: int) -> list[tuple[Any, ...]]:
    return [
        (
            *(one.offset, one.time_ms, entry.package_id, entry.action, entry.body_length),
            *(entry.user, entry.paths, entry.deep_paths, entry.targets),
        )
        for one, entry in records
        if one.offset > after and entry.publisher_agent == "main" and entry.action != Action.TEST
    ]


class QueueCacheMachine(RuleBasedStateMachine):
    """The log is a list; the cache began at some offset of it and is moved about."""

    @initialize(before=st.lists(entries, max_size=20))
    def begin(self, before: list[PackageEntry]) -> None:
        self.log: list[tuple[Record, PackageEntry]] = []
        self.next, self.oldest = 0, 0
        for entry in before:
            self._write(entry, 1)
        self.cache = QueueCache("main")
        self.cache.reset(self.next)

    def _write(self, entry: PackageEntry, gap: int) -> None:
        offset = self.next + gap - 1
        self.log.append((package_record(offset, entry, NOW + 7 * offset), entry))
        self.next = offset + 1

    @rule(new=st.lists(st.tuples(entries, st.integers(1, 3)), max_size=8))
    def append(self, new: list[tuple[PackageEntry, int]]) -> None:
        start = len(self.log)
        for entry, gap in new:
            self._write(entry, gap)
        self.cache.extend([one for one, _ in self.log[start:]])
        self.cache.extend([one for one, _ in self.log[-2:]])  # seen again: nothing new

    @rule(part=st.floats(0, 1))
    def fetch(self, part: float) -> None:
        start = max(self.oldest, int(part * self.cache.low))
        segments: list[ColumnSegment] = []
        missing = [one for one, _ in self.log if start <= one.offset < self.cache.low]
        add_rows(segments, rows_of(missing, b"main"))
        self.cache.prepend(segments, start, self.cache.low)

    @rule(part=st.floats(0, 1))
    def trim(self, part: float) -> None:
        self.cache.trim(int(part * self.next))

    @rule(part=st.floats(0, 1))
    def cut_the_log(self, part: float) -> None:
        self.oldest = max(self.oldest, int(part * self.next))
        self.log = [row for row in self.log if row[0].offset >= self.oldest]
        self.cache.forget_below(self.oldest)

    @invariant()
    def views_are_the_list(self) -> None:
        for after in {-1, self.oldest, self.cache.low - 1, self.cache.low, self.next - 2}:
            wanted = shown(self.log, after)
            view = self.cache.view(after, 5)
            if view is None:
                assert max(after + 1, self.oldest) < self.cache.low
                continue
            assert len(wanted) == self.cache.extent(after).length
            assert self.cache.backlog(after) == (len(wanted), sum(row[4] for row in wanted))
            assert [flat(one) for one in view.page.entries] == wanted[:5]
            assert (flat(view.head) if view.head else None) == (wanted[0] if wanted else None)
            middle = self.cache.view(after, 3, skip_to=after + 4)
            assert middle is not None
            assert [flat(one) for one in middle.page.entries] == shown(
                self.log, max(after, after + 3)
            )[:3]


def flat(entry: columns.QueueEntry) -> tuple[Any, ...]:
    return (
        *(entry.offset, entry.time_ms, entry.package_id, entry.action, entry.size),
        *(entry.user, entry.paths, entry.deep_paths, entry.targets),
    )


def test_r15_r17_a_queue_is_a_view_on_the_log(monkeypatch: Any) -> None:
    monkeypatch.setattr(columns, "_ENTRIES", 4)
    run_state_machine_as_test(
        QueueCacheMachine,
        settings=settings(max_examples=examples(60), stateful_step_count=20, deadline=None),
    )


def test_r15_entries_may_lie_months_apart() -> None:
    month_ms = 30 * 24 * 3600 * 1000
    log = []
    for offset in range(4):
        entry = PackageEntry(f"dstrpck-{NOW + offset * month_ms}-{offset:016x}", "main", Action.ADD)
        log.append((package_record(offset, entry, NOW + offset * month_ms), entry))
    cache = QueueCache("main")
    cache.extend([one for one, _ in log])
    view = cache.view(-1, 10)
    assert view is not None
    assert [flat(one) for one in view.page.entries] == shown(log, -1)


@given(st.lists(entries, min_size=1, max_size=30))
@settings(max_examples=examples(50), deadline=None)
def test_sealing_changes_nothing(given_entries: list[PackageEntry]) -> None:
    segments: list[ColumnSegment] = []
    records = [package_record(offset, entry) for offset, entry in enumerate(given_entries)]
    add_rows(segments, rows_of(records, b"main"))
    before = [segment.entry(i) for segment in segments for i in range(len(segment))]
    for segment in segments:
        segment.seal()
    assert [segment.entry(i) for segment in segments for i in range(len(segment))] == before


def test_r14_a_record_that_cant_be_read_is_shown() -> None:
    headers = {"publisher-agent": b"main", "package-id": b"dstrpck-x", "entry": b"\xff\xff"}
    cache = QueueCache("main")
    cache.extend([Record("package", 0, 3, NOW, None, headers, b"")])
    view = cache.view(-1, 10)
    assert view is not None
    [entry] = view.page.entries
    assert (entry.package_id, entry.action, entry.paths) == ("dstrpck-x", None, ())


def test_r17_an_entry_takes_30_bytes_and_its_paths() -> None:
    cache = QueueCache("main")
    path = "/content/site/page"
    count = 3 * columns._ENTRIES
    for start in range(0, count, 1024):
        cache.extend(
            [
                package_record(
                    offset,
                    PackageEntry(
                        f"dstrpck-{NOW}-{secrets.token_hex(8)}",
                        *("main", Action.ADD, (path,), (), "alice"),
                        body_length=5000,
                    ),
                )
                for offset in range(start, start + 1024)
            ]
        )
    assert cache.size / count - len(path) <= 31.1  # one byte ends the path


def test_r17_r30_long_ids_and_names_of_users_are_cut_and_counted() -> None:
    names = [f"{number:03}" + "x" * 5_000 for number in range(600)]
    users = [PackageEntry(name, "main", Action.ADD, user=name) for name in names]
    segments: list[ColumnSegment] = []
    records = [package_record(offset, entry) for offset, entry in enumerate(users)]
    add_rows(segments, rows_of(records, b"main"))
    kept = [segment.entry(at) for segment in segments for at in range(len(segment))]
    assert [(one.package_id, one.user) for one in kept] == [(name[:200],) * 2 for name in names]
    assert sum(segment.size for segment in segments) > 600 * 200


def test_what_a_subscriber_is_done_with_is_counted_also_once_it_is_gone() -> None:
    entry = PackageEntry("p", "main", Action.ADD, ("/a",))
    cache = QueueCache("main", 5_000)
    cache.extend([package_record(offset, entry) for offset in range(5_000, 15_000)])
    before, foreign = cache.position(4_999), cache.position(100)
    cache.trim(15_000)
    assert foreign is None
    assert before is not None
    assert cache.position(14_999) == before + 10_000
    rows = rows_of(
        [package_record(offset, entry) for offset in range(cache.low - 50, cache.low)], b"main"
    )
    segments: list[ColumnSegment] = []
    add_rows(segments, rows)
    cache.prepend(segments, cache.low - 50, cache.low)
    assert cache.position(14_999) == before + 10_000
    filling = cache.filling
    cache.reset(0)
    assert cache.filling != filling


def packages(*offsets: int) -> list[Record]:
    entry = PackageEntry("p", "main", Action.ADD, ("/a",))
    return [package_record(offset, entry) for offset in offsets]


def test_of_records_that_are_read_again_only_the_new_ones_count() -> None:
    cache = QueueCache("main")
    cache.extend(packages(0, 1, 2))
    cache.extend(packages(1, 2, 3))
    cache.extend(packages(0))
    assert (cache.next, cache.extent(-1).length) == (4, 4)


def test_r15_what_the_log_has_forgotten_is_gone_and_takes_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "_ENTRIES", 4)
    cache = QueueCache("main")
    cache.extend(packages(*range(8)))
    cache.forget_below(6)
    cache.forget_below(3)
    assert (cache.oldest, cache.low, cache.extent(-1).length) == (6, 4, 2)
    cache.forget_below(8)
    assert (cache.low, cache.size, cache.newest()) == (8, 0, None)


def test_what_the_cache_holds_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_ENTRIES", 4)
    cache, segments = QueueCache("main", 6), list[ColumnSegment]()
    cache.extend(packages(*range(6, 11)))
    add_rows(segments, rows_of(packages(*range(6, 11)), b"main"))
    assert measured() == (5, cache.size) == (5, sum(one.size for one in segments))
    segments.clear()
    add_rows(segments, rows_of(packages(4, 5), b"main"))
    cache.prepend(segments, 4, 6)
    assert measured() == (7, cache.size)


def measured() -> tuple[float | None, float | None]:
    name = "packhorse_publisher_cache"
    return (
        REGISTRY.get_sample_value(f"{name}_entries"),
        REGISTRY.get_sample_value(f"{name}_bytes"),
    )
