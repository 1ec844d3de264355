"""What the headers of archived packages say, read by Arrow from bronze's files in this process.

A pass over all of them takes 3 µs a package, and no job of Spark, whose JVM has just begun and took
60 to 90 µs.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.wire.package_codec import AGENT_HEADER, ENTRY_HEADER, PACKAGE_ID_HEADER
from packhorse_services.pipeline.archive.reading import headers_of
from packhorse_services.pipeline.history.packages import (
    TAG,
    BronzeVersion,
    agent_of,
    batches_of,
    column_batches,
    package_files,
    targets_of,
)
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION, literal, rows
from packhorse_services.pipeline.storage.table_files import Kept

_JOURNAL_HEADERS = ("journal_id", "headers")
_COLUMNS = ["offset", "time", *_JOURNAL_HEADERS]


@dataclass(frozen=True, slots=True)
class AgentPackages:
    """The archived packages of a publisher agent in a journal; offsets, and times in ms (R28)."""

    journal_id: str
    publisher_agent: str | None
    """None: those that name no agent."""
    first: int
    last: int
    since_ms: int
    until_ms: int
    wanted: int | None
    """The last one at or before the point that was asked for."""
    following: int | None
    """The first one behind it."""

    def with_others(self, other: "AgentPackages") -> "AgentPackages":
        """Return what both have together, which are of one agent."""
        return replace(
            self,
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            since_ms=min(self.since_ms, other.since_ms),
            until_ms=max(self.until_ms, other.until_ms),
            wanted=max(_known(self.wanted, other.wanted), default=None),
            following=min(_known(self.following, other.following), default=None),
        )


def _known(*offsets: int | None) -> list[int]:
    return [one for one in offsets if one is not None]


def agents_of(
    location: Location,
    version: BronzeVersion,
    *,
    offset: int | None = None,
    time: datetime | None = None,
) -> list[AgentPackages]:
    """Return what a version of bronze has of each agent, up to an offset or a time and behind it.

    Without either, everything is up to it. Raises `OSError` for a file that can't be read.
    """
    files = package_files(location, version)
    if offset is None and time is None:
        return _together(one for file in files for one in _whole(location, file.path).agents)
    batches = column_batches(location, files, _COLUMNS)
    return _together(
        one for batch in batches for one in _agents(batch, _within(batch, offset, time))
    )


def _together(found: Iterable[AgentPackages]) -> list[AgentPackages]:
    agents: dict[tuple[str, str | None], AgentPackages] = {}
    for one in found:
        key = one.journal_id, one.publisher_agent
        agents[key] = one.with_others(agents.get(key, one))
    return list(agents.values())


@dataclass(frozen=True, slots=True)
class _FileHeaders:
    """What the headers of all packages of a file say."""

    agents: list[AgentPackages]
    named: "dict[tuple[str, str, str], array[int]]"
    """Of a journal, an agent and a subscriber: the offsets of its packages that name that one."""


@cache
def _whole(location: Location, file: str) -> _FileHeaders:
    """Read a file, once: nobody writes another one of its name.

    Tasks that follow one another in a process ask the same, each of them more than once.
    """
    found: list[AgentPackages] = []
    named: dict[tuple[str, str, str], array[int]] = {}
    for batch in batches_of(location, file, _COLUMNS):
        found += _agents(batch, _within(batch, None, None))
        for journal_id, offset, headers in _marked(batch):
            for name in targets_of(headers):
                key = journal_id, agent_of(headers), name
                named.setdefault(key, array("q")).append(offset)
    return _FileHeaders(_together(found), named)


def _marked(batch: pa.RecordBatch) -> Iterator[tuple[str, int, dict[str, bytes]]]:
    """Yield journal, offset and headers of the packages that may be for named subscribers: few."""
    entries = header(batch.column("headers"), ENTRY_HEADER)
    some = batch.filter(pc.match_substring(entries.fill_null(b""), TAG))
    ids, offsets = (some.column(name).to_pylist() for name in ("journal_id", "offset"))
    return zip(ids, offsets, headers_of(some.column("headers")), strict=True)


def ids_at(location: Location, version: BronzeVersion, journal_id: str, offset: int) -> list[str]:
    """Return the ids of the packages at an offset, by their headers; one without has none: ""."""
    files = package_files(location, version)
    found = headers_between(location, files, journal_id, offset, offset)
    return [named.get(PACKAGE_ID_HEADER, b"").decode(errors="replace") for _, named in found]


def reaches(location: Location, version: BronzeVersion, journal_id: str, offset: int) -> bool:
    """Return whether a package at an offset or behind it is archived."""
    own = f"topic = {literal(version.package_topic)} AND journal_id = {literal(journal_id)}"
    sql = f'SELECT 1 FROM {RELATION} WHERE {own} AND "offset" >= {offset} LIMIT 1'  # noqa: S608
    return any(rows(stored(location, tables.BRONZE, version.number), sql))


def headers_between(
    location: Location, files: Iterable[Kept], journal_id: str, first: int, last: int
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """Yield offset and headers of a journal's packages from one offset to another, in no order."""
    columns = ["offset", *_JOURNAL_HEADERS]
    for batch in column_batches(location, files, columns, first, last):
        offsets = batch.column("offset")
        inside = pc.and_(pc.greater_equal(offsets, first), pc.less_equal(offsets, last))
        own = batch.filter(pc.and_(inside, pc.equal(batch.column("journal_id"), journal_id)))
        yield from zip(
            own.column("offset").to_pylist(), headers_of(own.column("headers")), strict=True
        )


@dataclass(frozen=True)
class PackageHeaders:
    """What the headers of a journal's packages say; each question is answered once."""

    location: Location
    journal_id: str
    version: BronzeVersion

    @cached_property
    def firsts(self) -> dict[str | None, int]:
        """Offset of each publisher agent's first package; None: of those that name none."""
        every = _together(one for file in self._files for one in file.agents)
        own = (one for one in every if one.journal_id == self.journal_id)
        return {one.publisher_agent: one.first for one in own}

    def named_for(self, subscriber: str, agents: Iterable[str]) -> Sequence[int]:
        """Return the offsets of the agents' packages that name `subscriber`, in order (R35)."""
        keys = [(self.journal_id, agent, subscriber) for agent in agents]
        return sorted(chain(*(one.named.get(key, ()) for one in self._files for key in keys)))

    def named_alone(self, one: str, other: str, agents: Iterable[str]) -> Collection[int]:
        """Return the offsets of the agents' packages that name just one of two subscribers."""
        named, named_other = ({*self.named_for(name, agents)} for name in (one, other))
        return named ^ named_other

    def has(self, base: ContentSnapshot) -> bool:
        """Return whether the package at a snapshot's offset is the one it names (R24), or gone."""
        found = ids_at(self.location, self.version, self.journal_id, base.offset)
        return all(one == base.package_id for one in found)

    @cached_property
    def _files(self) -> list[_FileHeaders]:
        files = package_files(self.location, self.version)
        return [_whole(self.location, one.path) for one in files]


def header(column: pa.ListArray, name: str) -> pa.Array:
    """Return the bytes of each record's last header of that name, null where it has none."""
    pairs, owners = column.flatten(), pc.list_parent_indices(column)
    named = pc.indices_nonzero(pc.equal(pairs.field("key"), name))[::-1]
    wanted = pa.array(range(len(column)), owners.type)
    found = pc.index_in(wanted, value_set=owners.take(named))  # of several, the first
    return pairs.field("value").take(named).take(found)


def _within(batch: pa.RecordBatch, offset: int | None, time: datetime | None) -> pa.Array:
    found = pa.array([True] * len(batch))
    if offset is not None:
        found = pc.and_(found, pc.less_equal(batch.column("offset"), offset))
    if time is not None:
        moments = batch.column("time")
        found = pc.and_(found, pc.less_equal(moments, pa.scalar(time, moments.type)))
    return found


def _agents(batch: pa.RecordBatch, within: pa.Array) -> Iterator[AgentPackages]:
    offsets, none = batch.column("offset"), pa.scalar(None, pa.int64())
    columns = {
        "journal_id": batch.column("journal_id"),
        "agent": header(batch.column("headers"), AGENT_HEADER),
        "offset": offsets,
        "ms": pc.floor_temporal(batch.column("time"), unit="millisecond")
        .cast(pa.timestamp("ms", "UTC"))
        .cast(pa.int64()),
        "wanted": pc.if_else(within, offsets, none),
        "following": pc.if_else(within, none, offsets),
    }
    grouped = pa.table(columns).group_by(["journal_id", "agent"]).aggregate(_BOUNDS)
    for row in grouped.to_pylist():
        agent = None if row["agent"] is None else row["agent"].decode(errors="replace")
        yield AgentPackages(row["journal_id"], agent, *(row["_".join(one)] for one in _BOUNDS))


_BOUNDS = [
    *(("offset", "min"), ("offset", "max"), ("ms", "min"), ("ms", "max")),
    *(("wanted", "max"), ("following", "min")),
]
