"""Which waiting packages share one import transaction."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packhorse.errors import Permanent
from packhorse.wire.messages import PackageMessage
from packhorse_services.subscriber.arrivals import Arrival, Mark, package_of
from packhorse_services.subscriber.sequences import HighWater


@dataclass(frozen=True, slots=True)
class Group:
    """Packages in front of a lane, of which `fresh` are to be imported and the rest repeats (R27).

    `high_water` is what it will be after the group.
    """

    arrivals: Sequence[Arrival]
    fresh: Sequence[tuple[Mark, PackageMessage]]
    high_water: HighWater

    @property
    def first(self) -> Mark:
        """The package in front."""
        return self.arrivals[0].mark

    @property
    def last(self) -> Mark:
        """Where the lane is after the import."""
        return self.arrivals[-1].mark

    @property
    def packages(self) -> list[PackageMessage]:
        """What is to be imported, in order."""
        return [package for _, package in self.fresh]


def single(arrival: Arrival, agent: str, high_water: HighWater) -> Group:
    """Return a group of one package. Raises `Undecodable` or `PackageRefused`."""
    package = package_of(arrival, agent)
    after = high_water.fork()
    fresh = [(arrival.mark, package)] if after.passes(package.entry, arrival.offset) else []
    return Group([arrival], fresh, after)


def next_group(
    waiting: Iterable[Arrival],
    agent: str,
    high_water: HighWater,
    accepts: Callable[[Arrival], bool] = lambda _: True,
) -> Group | None:
    """Return the longest group in front, or None when the first package can't be decoded.

    It ends before a package that `accepts` refuses, which is asked of all but the first. Packages
    of other agents in between are passed over. A body by reference is alone: it takes long, and
    so it neither holds nor rolls back the others.
    """
    arrivals: list[Arrival] = []
    fresh: list[tuple[Mark, PackageMessage]] = []
    after = high_water.fork()
    for arrival in waiting:
        if arrival.record is None:
            continue
        if arrivals and not accepts(arrival):
            break
        try:
            package = package_of(arrival, agent)
        except Permanent:
            break
        by_reference = package.body is not None and package.body.inline is None
        if by_reference and arrivals:
            break
        arrivals.append(arrival)
        if after.passes(package.entry, arrival.offset):
            fresh.append((arrival.mark, package))
        if by_reference:
            break
    return Group(arrivals, fresh, after) if arrivals else None
