"""The packages of one agent in a range of the log, for events: from memory, else from headers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from packhorse.messaging.api import Journal, Record
from packhorse.messaging.reading import read_range
from packhorse.wire.actions import is_probe
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import AGENT_HEADER, decode_entry
from packhorse.wire.record import Undecodable
from packhorse_services.publisher.queues.cache.filters import ALL
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache

_BATCH = 500
_SCAN = 20_000
"""Offsets that are read at a time: the cursor moves past what is another agent's."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A package and where it is."""

    offset: int
    package_id: str
    action: Action
    paths: tuple[str, ...]
    deep_paths: tuple[str, ...]
    targets: tuple[str, ...] = ()
    """The subscribers that it is for; empty: all."""


@dataclass(frozen=True, slots=True)
class PackageRange:
    """Packages in offset order, and up to which offset they are all."""

    packages: list[Placed]
    last: int


class PackageSource:
    """Gives ranges of the log. Packages of other agents, and TEST packages, are left out.

    So is a record that can't be read: no publisher of ours made it.
    """

    def __init__(self, journal: Journal, topic: str, cache: QueueCache) -> None:
        self._journal, self._topic, self._cache = journal, topic, cache

    def between(self, after: int, last: int) -> PackageRange:
        """Return what lies above `after`, up to `last` or less. Raises `JournalUnavailable`.

        All of that must be in the log.
        """
        return self._in_memory(after, last) or self._in_log(after, last)

    def _in_memory(self, after: int, last: int) -> PackageRange | None:
        last = min(last, self._cache.next - 1)
        page = self._cache.page(after + 1, _BATCH, ALL) if last > after else None
        if page is None:
            return None
        if page.behind is not None:
            last = min(last, page.behind)
        return PackageRange(
            [
                Placed(one.offset, one.package_id, one.action, *_content(one))
                for one in page.entries
                if one.offset <= last and one.action is not None
            ],
            last,
        )

    def _in_log(self, after: int, last: int) -> PackageRange:
        last = min(last, after + _SCAN)
        packages: list[Placed] = []
        for package in self._own(read_range(self._journal, self._topic, after + 1, last + 1)):
            packages.append(package)
            if len(packages) == _BATCH:
                return PackageRange(packages, package.offset)
        return PackageRange(packages, last)

    def _own(self, records: Iterable[Record]) -> Iterator[Placed]:
        agent = self._cache.agent.encode()
        for record in records:
            if record.headers.get(AGENT_HEADER) != agent:
                continue
            try:
                entry = decode_entry(record.headers)
            except Undecodable:
                continue
            if not is_probe(entry.action):
                yield Placed(record.offset, entry.package_id, entry.action, *_content(entry))


_content = attrgetter("paths", "deep_paths", "targets")
