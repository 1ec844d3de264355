"""Which point of the history is meant: an offset or a time becomes one archived package."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse_services.pipeline.errors import NotThere, TaskRefused
from packhorse_services.pipeline.history.bases import known_agents
from packhorse_services.pipeline.history.headers import AgentPackages, agents_of, ids_at
from packhorse_services.pipeline.history.packages import BronzeVersion
from packhorse_services.pipeline.history.read import bronze_version, gaps
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location


@dataclass(frozen=True, slots=True)
class HistoryTarget:
    """The last package that counts, of the agents that count."""

    journal_id: str
    agents: tuple[str, ...]
    offset: int
    package_id: str
    version: BronzeVersion
    """Everything about the content there is read from this one."""
    firsts: Mapping[str | None, int] | None = None
    """As `PackageHeaders` has them: who looks for an offset or a time meets all packages."""


def target(
    location: Location,
    package_topic: str,
    *,
    agents: Collection[str] = (),
    offset: int | None = None,
    time: datetime | None = None,
    snapshots: Collection[ContentSnapshot] = (),
) -> HistoryTarget:
    """Return the newest archived package at or before an offset, or a time of the journal (R28).

    Without either, the newest one. Without `agents`, those of all count, also of one whose packages
    have expired and are in some of `snapshots`. Raises `NotThere` when nothing is archived there or
    so late, `TaskRefused` when packages up to it are missing, and `TablesUnusable`.
    """
    version = bronze_version(location, package_topic)
    every = agents_of(location, version, offset=offset, time=time)
    if not every:
        raise NotThere(nothing_archived(location, package_topic, snapshots))
    journal_id = _newest_journal(every)
    archive = [one for one in every if one.journal_id == journal_id]
    known = _known(agents, archive, snapshots, journal_id)
    _require_archived(archive, offset, time)
    chosen = tuple(sorted(agents)) or known
    last = _last_of(chosen, archive)
    _require_no_gap(location, archive, last, offset)
    package_id = ids_at(location, version, journal_id, last)[0]
    firsts = {one.publisher_agent: one.first for one in archive}
    return HistoryTarget(journal_id, chosen, last, package_id, version, firsts)


def _known(
    agents: Collection[str],
    archive: Sequence[AgentPackages],
    snapshots: Collection[ContentSnapshot],
    journal_id: str,
) -> tuple[str, ...]:
    """Return the publisher agents that are known. Raises `NotThere` for others in `agents`."""
    names = (one.publisher_agent for one in archive if one.publisher_agent)
    known = tuple(sorted(known_agents(names, snapshots, journal_id)))
    if unknown := sorted(set(agents) - set(known)):
        raise NotThere(
            f"the archive has no package of publisher agent {unknown[0]!r}; it has those of "
            f"{', '.join(known)}"
        )
    return known


def _last_of(chosen: Collection[str], archive: Sequence[AgentPackages]) -> int:
    """Return the last offset that is wanted of some agents. Raises `NotThere` for none."""
    own = [one.wanted for one in archive if one.publisher_agent in chosen]
    if (last := max((one for one in own if one is not None), default=None)) is None:
        raise NotThere(f"no package of {', '.join(chosen)} is that early; choose a later point")
    return last


def _newest_journal(every: Sequence[AgentPackages]) -> str:
    """Return the identity of the package topic that was archived last (R24)."""
    return max(every, key=lambda one: one.until_ms).journal_id


def nothing_archived(
    location: Location, package_topic: str, snapshots: Collection[ContentSnapshot] = ()
) -> str:
    """Return why the archive holds no package of any journal, and what to do."""
    if stored(location, tables.BRONZE).version() == 0:
        return "no package is archived yet; run packhorse-pipeline archive"
    last = max(snapshots, key=lambda one: one.made_ms, default=None)
    held = "" if last is None else f", and snapshot {last.id} holds the content up to {last.offset}"
    return (
        f"the archive has no package left in topic {package_topic}: all have expired (upkeep's "
        "--retention-days), none had been published, or PACKHORSE_TOPIC_… names another one "
        f"than was archived{held}; distribute what is needed, such as / as a deep path, and run "
        "packhorse-pipeline archive"
    )


def _require_archived(
    archive: Sequence[AgentPackages], offset: int | None, time: datetime | None
) -> None:
    first, last = min(one.first for one in archive), max(one.last for one in archive)
    if offset is not None and not first <= offset <= last:
        raise NotThere(
            f"offset {offset} is not archived: the archive holds {first} to {last}; "
            "run packhorse-pipeline archive for later ones"
        )
    if time is not None:
        _require_time(archive, time, last)


def _require_time(archive: Sequence[AgentPackages], time: datetime, last: int) -> None:
    """Raise `NotThere` for a time before the archive begins, or after its newest package.

    What came after that one, up to `time`, nobody has archived: there may be more.
    """
    since = _moment(min(one.since_ms for one in archive))
    until = _moment(max(one.until_ms for one in archive))
    if time < since:
        raise NotThere(f"the archive begins at {_shown(since)}; choose a later time, or an offset")
    if time > until:
        raise NotThere(
            f"the newest archived package is of {_shown(until)}, and what came after it the "
            "archive can't know; run packhorse-pipeline archive, or name that package by "
            f"--offset {last}"
        )


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _shown(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _require_no_gap(
    location: Location, archive: Sequence[AgentPackages], found: int, offset: int | None
) -> None:
    """Raise `TaskRefused` when a gap lies between the package found and the point meant."""
    end = offset
    if end is None:
        following = [one.following for one in archive if one.following is not None]
        end = min(following, default=max(one.last for one in archive))
    for first, behind in gaps(location, archive[0].journal_id):
        if first <= end and behind > found:
            raise TaskRefused(
                f"the archive lacks offsets {first} to {behind - 1} of the package topic, which "
                "lie in between; choose a point before or behind them"
            )
