"""The topology as a running instance knows it: keeps it up to date and reports every change."""

import threading
from collections.abc import Iterable

from packhorse.clock import Clock, SystemClock
from packhorse.runtime.lifecycle import Worker
from packhorse.runtime.metrics import (
    TOPOLOGY_CHANGES,
    TOPOLOGY_CURRENT,
    TOPOLOGY_INSTANCES,
    TOPOLOGY_LEADER,
    report,
)
from packhorse.topology.events import MIN_EVENT_DELAY_S, EventFlow, EventKind, TopologyEvent
from packhorse.topology.listeners import Listener, Listeners
from packhorse.topology.membership import Membership, Observation
from packhorse.topology.participation import NoRemoteClusters, Participation, RemoteClusters
from packhorse.topology.properties import LocalProperties, PropertyProvider
from packhorse.topology.view import TopologyView

_FIRST_SURVEY_S = 1.0
"""How long the first heartbeat waits for the remote clusters, so that INIT has them."""
_SHORTEST_WAIT_S = 0.1
_LONGEST_WATCH_S = 3600.0


_METRICS = (
    *("packhorse_topology_instances", "packhorse_topology_leader", "packhorse_topology_current"),
    *("packhorse_topology_changes", "packhorse_topology_listener_failures"),
)


class Discovery:
    """A component that takes part in the own cluster and follows the topology.

    Three threads: one beats, which may hang with the store; one ends the view when it runs out,
    whatever the first one does; one reads the remote clusters, so that nothing of theirs delays a
    heartbeat. All methods may be called by any thread.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        providers: Iterable[PropertyProvider] = (),
        remotes: RemoteClusters | None = None,
        min_event_delay_s: float = MIN_EVENT_DELAY_S,
        clock: Clock | None = None,
    ) -> None:
        self._membership, self._clock = membership, clock or SystemClock()
        report(*_METRICS)
        self._properties = LocalProperties(providers)
        self._listeners = Listeners()
        self._part = Participation(
            membership,
            self._properties,
            remotes or NoRemoteClusters(),
            EventFlow(min_event_delay_s),
            notify=self._notify,
            clock=self._clock,
        )
        self._moved, self._paused = threading.Event(), threading.Event()
        self._look, self._surveyed = threading.Event(), threading.Event()
        self._beating = Worker("topology-beat", self._beat)
        self._watching = Worker("topology-watch", self._watch)
        self._surveying = Worker("topology-remotes", self._survey)

    @property
    def instance_id(self) -> str:
        """The persistent id of the local instance."""
        return self._membership.instance_id

    @property
    def membership(self) -> Membership:
        """The part in the own cluster, for what its store knows besides views."""
        return self._membership

    def start(self) -> None:
        """Begin to take part; returns at once, INIT follows when there is an agreed view."""
        for worker in (self._surveying, self._beating, self._watching):
            worker.start()

    def stop(self, timeout: float) -> None:
        """Send listeners CHANGING, leave the cluster, and end within about `timeout` seconds.

        A listener or a store that hangs is left behind after that.
        """
        until = self._clock.monotonic() + timeout
        self._part.end()
        for worker in (self._beating, self._watching, self._surveying):
            worker.request_stop()
        for event in (self._moved, self._paused, self._look, self._surveyed):
            event.set()
        self._membership.wake()
        for part in (self._beating, self._watching, self._listeners, self._surveying):
            part.stop(max(0.0, until - self._clock.monotonic()))

    def failure(self) -> BaseException | None:
        """Return what ended one of the threads, which no store and no listener does."""
        workers = (self._beating, self._watching, self._surveying)
        return next((death for one in workers if (death := one.failure())), None)

    def view(self) -> TopologyView | None:
        """Return the last known view, current or not; None before the first."""
        return self._part.view()

    def is_current(self) -> bool:
        """Return whether `view` may be relied on now: it has not run out and nothing changes."""
        return self._part.current_view() is not None

    def current_view(self) -> TopologyView | None:
        """Return the view if it may be relied on now, else None: both questions in one."""
        return self._part.current_view()

    def observation(self) -> Observation | None:
        """Return what the last heartbeat saw of the own cluster."""
        return self._part.observation()

    def trouble(self) -> str:
        """Return why the last heartbeat failed; empty when it did not."""
        return self._part.trouble()

    def add_listener(self, listener: Listener) -> None:
        """Send it INIT once there is a current view, then every change, in a thread of its own."""
        self._listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Notify it no more; a call under way may still be going on."""
        self._listeners.remove(listener)

    def set_property(self, name: str, value: str) -> None:
        """Announce a property of the local instance, over every provider's. `InvalidProperty`."""
        self._properties.set(name, value)
        self._membership.wake()

    def was_set(self, name: str) -> bool:
        """Return whether `set_property` announces it, whatever providers give."""
        return self._properties.was_set(name)

    def remove_property(self, name: str) -> bool:
        """Take back what `set_property` announced; false when it did not."""
        was_set = self._properties.remove(name)
        self._membership.wake()
        return was_set

    def properties(self) -> dict[str, str]:
        """Return what this instance announces."""
        return self._properties.current()

    def wake(self) -> None:
        """Look at the topology soon, because something may have changed."""
        self._membership.wake()

    def _beat(self, stopping: threading.Event) -> None:
        self._clock.wait(self._surveyed, _FIRST_SURVEY_S)
        hinted = True
        while not stopping.is_set():
            began = self._clock.monotonic()
            pause = self._part.beat()
            self._moved.set()
            if hinted or self._part.must_survey():
                self._look.set()
            if stopping.is_set():
                break
            hinted = self._wait(pause, began) if pause > 0 else True
        self._part.leave()

    def _wait(self, pause: float, began: float) -> bool:
        """Hints come in crowds, and a store that fails may not know how to wait.

        Return whether there may have been a hint.
        """
        if self._part.trouble():
            self._clock.wait(self._paused, pause)
            return True
        hinted = self._membership.wait(pause)
        rest = began + _SHORTEST_WAIT_S - self._clock.monotonic()
        if rest > 0:
            self._clock.wait(self._paused, rest)
        return hinted

    def _survey(self, stopping: threading.Event) -> None:
        while True:
            self._look.clear()
            if stopping.is_set():
                break
            if self._part.survey():
                self._membership.wake()
            self._surveyed.set()
            self._clock.wait(self._look, _LONGEST_WATCH_S)

    def _watch(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            due = self._part.due() - self._clock.monotonic()
            if due > 0:
                self._clock.wait(self._moved, min(due, _LONGEST_WATCH_S))
                self._moved.clear()
            else:
                self._part.elapsed()

    def _notify(self, event: TopologyEvent) -> None:
        self._listeners.post(event)
        TOPOLOGY_CHANGES.labels(event.kind.value).inc()
        TOPOLOGY_CURRENT.set(event.kind is not EventKind.CHANGING)
        TOPOLOGY_LEADER.set(event.new is not None and event.new.local_instance.is_leader)
        if event.new is not None:
            TOPOLOGY_INSTANCES.set(len(event.new.instances))
