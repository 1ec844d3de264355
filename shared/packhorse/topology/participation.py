"""One heartbeat after the other: store, remote clusters, events. Without threads of its own."""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from packhorse.clock import Clock
from packhorse.topology.events import EventFlow, TopologyEvent
from packhorse.topology.membership import (
    DuplicateInstance,
    Membership,
    Observation,
    StoreUnavailable,
)
from packhorse.topology.properties import LocalProperties
from packhorse.topology.view import ClusterView, TopologyView

logger = logging.getLogger(__name__)


class RemoteClusters(Protocol):
    """The clusters that connectors have reported."""

    def clusters(self) -> Sequence[ClusterView]:
        """Return those that are valid now. Raises `StoreUnavailable`."""
        ...

    def is_fresh(self) -> bool:
        """Return whether the last look will do for as long as the database gives no hint."""
        ...


class NoRemoteClusters:
    """No connectors: only the own cluster."""

    def clusters(self) -> Sequence[ClusterView]:
        """Return none."""
        return ()

    def is_fresh(self) -> bool:
        """Never look again."""
        return True


class Participation:
    """Drives one membership and passes its events to `notify`, in order and one at a time.

    `beat` and `leave` are called by one thread, `survey` by one too; everything else by any. What
    goes wrong is logged when it begins and when it ends; the view ends when it runs out,
    or at once for a duplicate.
    """

    def __init__(
        self,
        membership: Membership,
        properties: LocalProperties,
        remotes: RemoteClusters,
        flow: EventFlow,
        *,
        notify: Callable[[TopologyEvent], None],
        clock: Clock,
    ) -> None:
        self._membership, self._properties, self._remotes = membership, properties, remotes
        self._flow, self._notify, self._clock = flow, notify, clock
        self._lock = threading.Lock()
        self._clusters: tuple[ClusterView, ...] = ()
        self._reported_others = ""
        self._trouble = ""
        self._remote_trouble = ""
        self._ended = False

    def beat(self) -> float:
        """Beat once; return after how many seconds to beat again: 0 when the others wait."""
        try:
            seen = self._membership.beat(self._properties.current())
        except DuplicateInstance as error:
            self._note(error)
            self._lose()
        except Exception as error:
            self._note(error)
            self.elapsed()
        else:
            self._note(None)
            return self._observe(seen)
        return self._membership.interval_s

    def elapsed(self) -> None:
        """Report what is due because time has passed; at `due`, or whenever."""
        with self._lock:
            if not self._ended:
                self._notify_all(self._flow.elapsed(self._clock.monotonic()))

    def due(self) -> float:
        """Return when `elapsed` is to be called, on the monotonic clock; inf if never."""
        with self._lock:
            return math.inf if self._ended else self._flow.due()

    def end(self) -> None:
        """Send CHANGING if the view holds, and nothing after it."""
        with self._lock:
            if not self._ended:
                self._notify_all(self._flow.lose(self._clock.monotonic()))
                self._ended = True

    def survey(self) -> bool:
        """Read the remote clusters for the next beat; true when they are not as they were.

        Not part of `beat`, so that connectors' tables never delay a heartbeat. Clusters that can't
        be read stay as they were.
        """
        before = self._clusters
        try:
            self._clusters = tuple(self._remotes.clusters())
        except Exception as error:
            if self._remote_trouble != type(error).__name__:
                trace = not isinstance(error, StoreUnavailable)
                logger.warning("the remote clusters can't be read: %s", error, exc_info=trace)
            self._remote_trouble = type(error).__name__
        else:
            self._remote_trouble = ""
        return self._clusters != before

    def must_survey(self) -> bool:
        """Return whether to `survey` after a beat that no hint has asked for."""
        return not self._remotes.is_fresh()

    def leave(self) -> None:
        """Leave the cluster, after the last beat."""
        try:
            self._membership.leave()
        except Exception:
            logger.exception("leaving the cluster failed; the others notice by themselves")

    def view(self) -> TopologyView | None:
        """Return what was reported last."""
        with self._lock:
            return self._flow.view

    def current_view(self) -> TopologyView | None:
        """Return what was reported last if it holds now, else None."""
        with self._lock:
            holds = self._flow.is_current(self._clock.monotonic())
            return self._flow.view if holds else None

    def observation(self) -> Observation | None:
        """Return what the last heartbeat saw; None at first and without a membership."""
        with self._lock:
            return self._flow.observation

    def trouble(self) -> str:
        """Return why the last heartbeat failed; empty when it did not."""
        return self._trouble

    def _observe(self, seen: Observation) -> float:
        with self._lock:
            if self._ended:
                return self._membership.interval_s
            self._notify_all(self._flow.observe(seen, self._clusters, self._clock.monotonic()))
            revision = self._flow.acknowledgement()
        if revision is None:
            return self._membership.interval_s
        self._membership.acknowledge(revision)
        news, self._reported_others = revision != self._reported_others, revision
        return 0.0 if news and not seen.settled else self._membership.interval_s

    def _lose(self) -> None:
        with self._lock:
            if not self._ended:
                self._notify_all(self._flow.lose(self._clock.monotonic()))

    def _notify_all(self, events: Sequence[TopologyEvent]) -> None:
        for event in events:
            self._notify(event)

    def _note(self, error: Exception | None) -> None:
        """Log a change of state once, however long it lasts."""
        trouble = "" if error is None else f"{type(error).__name__}: {error}"
        kind = "" if error is None else type(error).__name__
        before, self._trouble = self._trouble, trouble
        if kind == before.partition(":")[0]:
            return
        if error is None:
            logger.info("the topology's heartbeat succeeds again")
        elif isinstance(error, StoreUnavailable | DuplicateInstance):
            logger.warning("the topology's heartbeat fails: %s", trouble)
        else:
            logger.error("the topology's heartbeat fails: %s", trouble, exc_info=error)
