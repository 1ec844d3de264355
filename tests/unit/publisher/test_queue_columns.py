"""R17, R30: what few packages have, and numbers at the ends of what a column holds."""

from collections.abc import Sequence

import pytest

from packhorse.content.node import MAX_PATH_BYTES
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.publisher.queues.cache.columns import QueueEntry
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from tests.unit.publisher.package_records import NOW, package_record


def entries(cache: QueueCache) -> Sequence[QueueEntry]:
    view = cache.view(-1, 10)
    assert view is not None
    return view.page.entries


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("step", "later_ms", "ahead_ms", "size"),
    [
        (1, 0, 2**15 - 1, 2**32 - 1),
        (1, 0, 2**15, 2**32),
        (2**32 - 1, 2**31 - 1, 0, 0),
        (1, 0, 0, -1),
        (1, 2**31, 0, 0),
        (1, 2**31 + 1, 0, 0),
        (2**32, 0, 0, 0),
    ],
)
def test_numbers_at_the_end_of_a_column_are_shown_as_they_are(
    sign: int, step: int, later_ms: int, ahead_ms: int, size: int
) -> None:
    given = []
    for offset, ms in ((0, 0), (step, sign * later_ms)):
        accepted_ms = NOW + ms + sign * ahead_ms
        entry = PackageEntry(
            f"dstrpck-{accepted_ms}-{0:016x}", "main", Action.ADD, body_length=size if offset else 5
        )
        given.append((package_record(offset, entry, NOW + ms), entry))
    cache = QueueCache("main")
    cache.extend([one for one, _ in given])
    assert [(one.offset, one.time_ms, one.package_id, one.size) for one in entries(cache)] == [
        (one.offset, one.time_ms, entry.package_id, entry.body_length) for one, entry in given
    ]
    assert cache.backlog(0) == (1, max(0, size))


def test_a_part_of_a_package_shows_its_range_and_one_that_is_too_long_is_cut() -> None:
    ranges = [("", ""), ("/a/1", "/a/2"), ("/b", ""), ("/" + "x" * 5_000, "/y")]
    cache, sizes = QueueCache("main"), [0]
    for offset, (first, end) in enumerate(ranges):
        part = PackageEntry("p", "main", Action.ADD, range_from=first, range_to=end)
        cache.extend([package_record(offset, part)])
        sizes.append(cache.size - sum(sizes))
    assert [(one.range_from, one.range_to) for one in entries(cache)] == [
        (first[:MAX_PATH_BYTES], end) for first, end in ranges
    ]
    assert sizes[1] < sizes[2] < MAX_PATH_BYTES < sizes[4]
