"""Which waiting packages share one import transaction."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packhorse.errors import Permanent
from packhorse.wire.messages import PackageMessage
from packhorse_services.subscriber.journal.arrivals import Arrival, Mark, entry_of, package_of
from packhorse_services.subscriber.journal.selection import Selection
from packhorse_services.subscriber.journal.sequences import HighWater, ImpossibleSequence


@dataclass(frozen=True, slots=True)
class Group:
    """The next packages of a subscription: `fresh` are to be imported, `left_out` are not, and why.

    The rest are repeats (R27). `high_water` is what it will be after the group.
    """

    arrivals: Sequence[Arrival]
    fresh: Sequence[tuple[Mark, PackageMessage]]
    high_water: HighWater
    left_out: Sequence[tuple[Mark, str]] = ()

    @property
    def first(self) -> Mark:
        """The package in front."""
        return self.arrivals[0].mark

    @property
    def last(self) -> Mark:
        """Where the subscription is after the import."""
        return self.arrivals[-1].mark

    @property
    def repeats(self) -> list[Mark]:
        """What is passed without import, in order."""
        if len(self.fresh) + len(self.left_out) == len(self.arrivals):
            return []
        others = {mark.offset for mark, _ in (*self.fresh, *self.left_out)}
        return [one.mark for one in self.arrivals if one.offset not in others]

    @property
    def packages(self) -> list[PackageMessage]:
        """What is to be imported, in order."""
        return [package for _, package in self.fresh]


def single(arrival: Arrival, agent: str, high_water: HighWater, selection: Selection) -> Group:
    """Return a group of one package.

    Raises `Undecodable`, `PackageRefused` or `ImpossibleSequence`.
    """
    group = _GroupInMaking(high_water.fork(), selection)
    group.add(arrival, package_of(arrival, agent))
    return group.made()


def next_group(
    waiting: Iterable[Arrival],
    agent: str,
    high_water: HighWater,
    selection: Selection,
    accepts: Callable[[Arrival], bool] = lambda _: True,
) -> Group | None:
    """Return the longest group in front, or None when the first package can't be decoded.

    It ends before a package that `accepts` refuses, which is asked of all but the first. Packages
    of other agents are passed over. A body by reference is alone: it takes long, and so it neither
    holds nor rolls back the others.
    """
    group = _GroupInMaking(high_water.fork(), selection)
    for arrival in (one for one in waiting if one.record is not None):
        if group.arrivals and not accepts(arrival):
            break
        try:
            package = package_of(arrival, agent)
            if group.arrivals and _is_by_reference(package):
                break
            group.add(arrival, package)
        except Permanent:
            break
        if _is_by_reference(package):
            break
    return group.made() if group.arrivals else None


class _GroupInMaking:
    def __init__(self, after: HighWater, selection: Selection) -> None:
        self._after, self._selection = after, selection
        self.arrivals: list[Arrival] = []
        self._fresh: list[tuple[Mark, PackageMessage]] = []
        self._left_out: list[tuple[Mark, str]] = []

    def add(self, arrival: Arrival, package: PackageMessage) -> None:
        """Take a package in. Raises `ImpossibleSequence`; then it isn't."""
        is_fresh = self._after.passes(package.entry, arrival.offset)
        self.arrivals.append(arrival)
        if why := self._selection.left_out(package):
            self._left_out.append((arrival.mark, why))
        elif is_fresh:
            self._fresh.append((arrival.mark, package))

    def made(self) -> Group:
        """Return the group."""
        return Group(self.arrivals, self._fresh, self._after, self._left_out)


def _is_by_reference(package: PackageMessage) -> bool:
    return package.body is not None and package.body.inline is None


def after_removal(high_water: HighWater, removed: Iterable[Arrival], *, wanted: bool) -> HighWater:
    """Return what it is once packages were removed: they were processed, and so are their repeats.

    An impossible number is not noted. Where somebody `wanted` the removal, the next one of that
    producer may be any: else a log that has lost packages would block the subscription again and
    again.
    """
    after = high_water.fork()
    impossible: set[str] = set()
    for arrival in removed:
        if entry := entry_of(arrival):
            try:
                after.passes(entry, arrival.offset)
            except ImpossibleSequence:
                impossible.add(entry.producer)
    for producer in impossible if wanted else ():
        after.release(producer)
    return after
