"""What must hold in every simulation, after every step of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.membership import Observation
from packhorse.topology.view import ClusterView, TopologyView
from tests.harness.topology.process import SimulatedListener, SimulatedProcess
from tests.harness.topology.world import World

Stay = tuple[str, str]
"""An instance id, and what distinguishes one membership from the next."""

VERSION = "remote.version"


@dataclass(frozen=True)
class Agreed:
    """What the store says of one revision."""

    stays: Mapping[str, str]
    """Instance id to what distinguishes this membership from others."""
    before: str
    """The revision that it followed, "" for none."""
    is_final: bool = True
    """What leaving instances left behind is dealt with."""


class Checks:
    """Watches all processes; `agreed` asks the store itself, past all networks."""

    def __init__(
        self, world: World, agreed: Callable[[str], Agreed | None], *, min_delay_s: float
    ) -> None:
        self._world, self._agreed, self._min_delay_s = world, agreed, min_delay_s
        self._shapes: dict[str, tuple[str, ...]] = {}
        self._changing_at: dict[SimulatedProcess, float] = {}
        self._reported: dict[SimulatedProcess, Hearing] = {}
        self._heard: dict[SimulatedListener, Hearing] = {}
        self.preferred: set[str] = set()
        """Machines that come first when the leader has ended."""
        self.views_agreed = 0
        self.followed: set[tuple[str, str]] = set()

    def observed(self, process: SimulatedProcess, seen: Observation) -> None:
        """Check: one content a revision, with one leader, in the stable order."""
        if seen.view is None:
            return
        self._check_form(process, seen.view)
        known = self._shapes.setdefault(seen.revision, seen.view.ids)
        if known != seen.view.ids:
            self._world.fail(f"{process.name} sees {seen.view.ids} under {seen.revision}: {known}")
        self._check_order(seen.revision)

    def _check_form(self, process: SimulatedProcess, view: ClusterView) -> None:
        leaders = [one.id for one in view.instances if one.is_leader]
        local = [one.id for one in view.instances if one.is_local]
        if leaders != [view.ids[0]] or local != [process.machine]:
            self._world.fail(f"{process.name}: leaders {leaders}, local {local} of {view.ids}")

    def _check_order(self, revision: str) -> None:
        """Compare with the nearest earlier revision that anybody has seen."""
        agreed = self._agreed(revision)
        if agreed is None:
            self._world.fail(f"nobody ever agreed on {revision}")
            return
        new = [(one, agreed.stays[one]) for one in self._shapes[revision]]
        before: Agreed | None = agreed
        while before is not None and before.before:
            earlier, before = before.before, self._agreed(before.before)
            if before is not None and earlier in self._shapes:
                old = [(one, before.stays[one]) for one in self._shapes[earlier]]
                self._compare(earlier, old, revision, new)
                return

    def _compare(self, r1: str, old: Sequence[Stay], r2: str, new: Sequence[Stay]) -> None:
        stayed = [one for one in old if one in new]
        if old[0] not in new and new[0][0] in self.preferred:
            stayed = [new[0], *(one for one in stayed if one != new[0])]
        if list(new[: len(stayed)]) != stayed:
            self._world.fail(f"the order is not stable: {r1} {old}, then {r2} {new}")

    def reported(self, process: SimulatedProcess, event: TopologyEvent, revision: str) -> None:
        """Check what a process sends its listeners, at the moment it does."""
        hearing = self._reported.setdefault(process, Hearing(self._world, process.name))
        hearing.next(event, revision, self.followed)
        agreed = self._agreed(revision) if revision else None
        if agreed is not None and not agreed.is_final:
            self._world.fail(f"{process.name} hands out {revision}, which is not final")
        if event.kind is EventKind.CHANGING:
            self._changing_at[process] = self._world.now
        if event.kind is EventKind.CHANGED:
            self.views_agreed += 1
            waited = self._world.now - self._changing_at[process]
            if waited < self._min_delay_s - 1e-3:
                self._world.fail(f"{process.name} joined changes for {waited} s only")

    def heard(self, listener: SimulatedListener, event: TopologyEvent, revision: str) -> None:
        """Check what one listener hears, after its mailbox has joined what it was too slow for."""
        name = f"a listener of {listener.process.name}"
        hearing = self._heard.setdefault(listener, Hearing(self._world, name))
        hearing.next(event, revision, self.followed)

    def one_view(self, processes: Iterable[SimulatedProcess]) -> None:
        """Check: of the instances that hold a current view, all hold the same one."""
        held = [one for one in processes if one.holds_view]
        if len({one.revision for one in held}) > 1:
            shown = [(one.name, one.revision, one.flow.view) for one in held]
            self._world.fail(f"several views are current: {shown}")

    def converged(self, live: Sequence[SimulatedProcess]) -> None:
        """Check: all that live hold the same current view, of all that live."""
        wanted = {one.machine for one in live}
        for process in live:
            view = process.participation.current_view()
            if view is None or set(view.local_cluster.ids) != wanted:
                shown = process.participation.observation(), process.participation.trouble()
                self._world.fail(f"{process.name} of {wanted} has not converged: {view} {shown}")
                return
            self._check_properties(view, live)
        self._check_listeners(live)

    def _check_properties(self, view: TopologyView, live: Sequence[SimulatedProcess]) -> None:
        announced = {one.machine: one.properties.current() for one in live}
        seen = {one.id: dict(one.properties) for one in view.local_cluster.instances}
        if seen != announced:
            self._world.fail(f"properties have not spread: {seen}, {announced}")

    def _check_listeners(self, live: Sequence[SimulatedProcess]) -> None:
        for process in live:
            for listener in process.listeners:
                last = listener.heard[-1][0].new if listener.heard else None
                if listener.slowness_s < 1 and last != process.participation.view():
                    self._world.fail(f"a listener of {process.name} knows {last}")

    def one_sequence(self) -> None:
        """Check: what all listeners heard fits one order of all views."""
        after: dict[str, set[str]] = {}
        for earlier, later in self.followed:
            after.setdefault(earlier, set()).add(later)
        done: set[str] = set()
        for revision in list(after):
            self._visit(revision, after, done, [])

    def _visit(
        self, revision: str, after: Mapping[str, set[str]], done: set[str], path: list[str]
    ) -> None:
        if revision in path:
            self._world.fail(f"views were heard in different orders: {[*path, revision]}")
        if revision in done:
            return
        for later in after.get(revision, ()):
            self._visit(later, after, done, [*path, revision])
        done.add(revision)


class Hearing:
    """Checks the events that one listener hears, in their order."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._known: TopologyView | None = None
        self._revision = ""
        self._changing = False

    def next(self, event: TopologyEvent, revision: str, followed: set[tuple[str, str]]) -> None:
        self._check_kind(event)
        if event.new is None:
            self._changing = True
            return
        if self._revision and revision != self._revision:
            followed.add((self._revision, revision))
            if event.kind is EventKind.PROPERTIES_CHANGED:
                self._world.fail(f"{self._name}: {revision} is called a change of properties")
        if self._known is not None and version_of(event.new) < version_of(self._known):
            self._world.fail(f"{self._name}: the remote clusters went back")
        self._known, self._revision, self._changing = event.new, revision, False

    def _check_kind(self, event: TopologyEvent) -> None:
        if self._known is None:
            expected = {EventKind.INIT}
        elif self._changing:
            expected = {EventKind.CHANGED}
        else:
            expected = {EventKind.CHANGING, EventKind.PROPERTIES_CHANGED}
        if event.kind not in expected or event.old != self._known:
            state = "CHANGING" if self._changing else "current"
            self._world.fail(f"{self._name} hears {event.kind} while {state}: {event}")


def version_of(view: TopologyView) -> int:
    """Return how new the remote clusters of a view are."""
    versions = (one.properties.get(VERSION, "0") for one in view.instances)
    return max(map(int, versions))
