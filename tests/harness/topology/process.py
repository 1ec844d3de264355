"""A simulated packhorse process: the real membership, events and mailboxes, and no threads."""

import math
from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from packhorse.topology.events import EventFlow, EventKind, TopologyEvent
from packhorse.topology.listeners import ViewMailbox
from packhorse.topology.membership import Membership
from packhorse.topology.participation import Participation
from packhorse.topology.properties import LocalProperties
from packhorse.topology.view import TopologyView
from tests.harness.topology.wire import Answer
from tests.harness.topology.world import MachineClock, World


class SimulatedListener:
    """Hears what its mailbox gives it, each event after `slowness_s` seconds."""

    def __init__(self, process: "SimulatedProcess", slowness_s: float) -> None:
        self.process, self.slowness_s = process, slowness_s
        self.heard: list[tuple[TopologyEvent, str]] = []
        self._mailbox, self._busy = process.build_mailbox(), False

    def post(self, event: TopologyEvent) -> None:
        self._mailbox.post(event)
        if not self._busy:
            self._busy = True
            self.process.later(self.slowness_s, self._hear)

    def _hear(self) -> None:
        event = self._mailbox.take()
        if event is None:
            self._busy = False
            return
        revision = "" if event.new is None else self.process.revision_of(event.new)
        self.heard.append((event, revision))
        self.process.overhear(self, event, revision)
        self.process.later(self.slowness_s, self._hear)


class SimulatedProcess:
    """One run of an instance on a machine; killed, paused, cut off and continued at any step."""

    def __init__(self, world: World, name: str, machine: str, clock: MachineClock) -> None:
        self.world, self.name, self.machine, self.clock = world, name, machine, clock
        self.listeners: list[SimulatedListener] = []
        self.properties = LocalProperties()
        self.is_alive, self.is_paused, self.is_stopping = True, False, False
        self.wiretap: Callable[[SimulatedProcess, TopologyEvent, str], None]
        self.overhear: Callable[[SimulatedListener, TopologyEvent, str], None]
        self.build_mailbox: Callable[[], ViewMailbox] = ViewMailbox
        self.participation: Participation
        self.flow = EventFlow()
        self._reported: dict[int, tuple[TopologyView, str]] = {}
        self._last: TopologyView | None = None
        self._held_back: list[Callable[[], None]] = []
        self._armed = math.inf
        self._nap = 0
        self._napping = False
        self._body, self._others = greenlet(self._run), list[greenlet]()

    def begin(self, membership: Membership, flow: EventFlow, remotes: Any) -> None:
        self.flow = flow
        self.participation = Participation(
            membership, self.properties, remotes, flow, notify=self._notify, clock=self.clock
        )
        self._body.switch()

    def also(self, work: Callable[[], None]) -> None:
        """Do this as well, as a thread of its own would."""
        body = greenlet(work)
        self._others.append(body)
        body.switch()

    def nap(self, seconds: float) -> None:
        """Give way for a while, in work that is done as well."""
        me = getcurrent()
        self.later(seconds, lambda: me.switch(None))
        self._give_way()

    def listen(self, slowness_s: float) -> None:
        listener = SimulatedListener(self, slowness_s)
        self.listeners.append(listener)
        if self._last is not None:
            listener.post(TopologyEvent(EventKind.INIT, None, self._last))

    def revision_of(self, view: TopologyView) -> str:
        return self._reported[id(view)][1]

    @property
    def holds_view(self) -> bool:
        """It has a view that it may rely on now, by its own clock."""
        return self.flow.is_current(self.clock.monotonic())

    @property
    def revision(self) -> str:
        """The revision of the last view that it reported."""
        view = self.flow.view
        return "" if view is None else self.revision_of(view)

    def kill(self) -> None:
        if self.is_alive:
            self.is_alive = False
            for body in (self._body, *self._others):
                body.throw(GreenletExit)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused and self.is_alive:
            self.is_paused = False
            waiting, self._held_back = self._held_back, []
            for act in waiting:
                self._do(act)

    def stop(self) -> None:
        """End as a process does that was asked to."""
        self._do(self._stop)

    def hint(self) -> None:
        if self._napping:
            self._do(lambda: self._wake(self._nap))

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.world.after(seconds, lambda: self._do(act))

    def await_answer(self, begin: Callable[[Answer], None]) -> Any:
        """Give way until the answer is there; it may be an exception."""
        me = getcurrent()
        pending = True

        def answer(outcome: Callable[[], Any]) -> None:
            nonlocal pending
            if pending:  # the first one counts
                pending = False
                self._do(lambda: me.switch(outcome))

        begin(answer)
        outcome = self._give_way()
        return outcome()

    def _do(self, act: Callable[[], None]) -> None:
        """Do something in this process: not after its end, and once it is continued."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._held_back.append(act)
            return
        act()

    def _run(self) -> None:
        while not self.is_stopping:
            self.participation.survey()
            pause = self.participation.beat()
            self._arm()
            if pause > 0 and not self.is_stopping:
                self._sleep(pause)
        self.participation.leave()
        self.is_alive = False

    def _stop(self) -> None:
        self.is_stopping = True
        self.participation.end()
        if self._napping:
            self._wake(self._nap)

    def _sleep(self, seconds: float) -> None:
        self._nap += 1
        nap, self._napping = self._nap, True
        self.later(seconds, lambda: self._wake(nap))
        self._give_way()

    def _wake(self, nap: int) -> None:
        if self._napping and nap == self._nap:
            self._napping = False
            self._body.switch(None)

    def _give_way(self) -> Any:
        hub = self._body.parent
        return hub.switch()

    def _arm(self) -> None:
        due = self.participation.due()
        if due < self._armed:
            self._armed = due
            self.world.at(due - self.clock.offset + 1e-6, lambda: self._do(self._elapse))

    def _elapse(self) -> None:
        self._armed = math.inf
        self.participation.elapsed()
        self._arm()

    def _notify(self, event: TopologyEvent) -> None:
        self._last, seen = event.new, self.flow.observation
        revision = "" if seen is None or event.new is None else seen.revision
        if event.new is not None:
            self._reported[id(event.new)] = (event.new, revision)
        self.wiretap(self, event, revision)
        for listener in self.listeners:
            listener.post(event)
