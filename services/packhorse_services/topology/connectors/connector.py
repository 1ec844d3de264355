"""One configured URL: a thread that exchanges announcements with whoever answers there."""

import logging
import threading
from dataclasses import dataclass, replace
from typing import Protocol

import httpx
import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from packhorse.errors import PackhorseError
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.metrics import TOPOLOGY_EXCHANGES
from packhorse.topology.announcements import Announcement
from packhorse_services.topology.connectors.backoff import pause_after
from packhorse_services.topology.connectors.exchange import Exchange, ExchangeFailed
from packhorse_services.topology.connectors.knowledge import ClusterKnowledge, Knowledge
from packhorse_services.topology.connectors.options import shown
from packhorse_services.topology.connectors.reception import is_loop, kept_of
from packhorse_services.topology.connectors.states import ConnectorPhase

logger = logging.getLogger(__name__)

_SHORTEST_S = 0.1
"""From one exchange to the next, whatever the peers announce: two with ever new news could
otherwise let each other's connectors run without a pause."""

_MOST_OWNERS = 512

_DATABASE_AWAY = (psycopg.Error, PoolTimeout, PoolClosed)


class Neighbours(Protocol):
    """The connectors of one process, as one of them knows them."""

    def is_overtaken(self, connector: "Connector", cluster: str) -> bool:
        """Return whether one with an earlier URL works and leads to that cluster."""
        ...

    def kick_later(self, connector: "Connector", cluster: str) -> None:
        """Let later ones that lead to that cluster stand by or step in: this one has changed."""
        ...


@dataclass(frozen=True, slots=True)
class ExchangeOutcome:
    """How the last exchange went."""

    state: ConnectorPhase = ConnectorPhase.WAITING
    reason: str = ""
    instance_id: str = ""
    cluster_id: str = ""
    interval_s: float = 0.0
    failures: int = 0
    succeeded_ms: int | None = None
    due: float = 0.0
    """When the next exchange is, on the monotonic clock."""

    @property
    def works(self) -> bool:
        """Whether the peer has answered as it should."""
        return self.state in (ConnectorPhase.CONNECTED, ConnectorPhase.STANDBY)


class Connector(WorkerComponent):
    """Exchanges at its interval, and after `kick`; stands by for an earlier URL."""

    def __init__(self, base: httpx.URL, knowledge: Knowledge, neighbours: Neighbours) -> None:
        self._knowledge, self._neighbours = knowledge, neighbours
        self._settings, self._clock = knowledge.settings, knowledge.clock
        self.url, self._host = shown(base), base.netloc.decode("ascii")
        self._exchange = Exchange(base, knowledge.topology.instance_id, knowledge.settings)
        self._wake = threading.Event()
        self._outcome = ExchangeOutcome()
        self._owners: set[str] = set()
        self._worker = Worker(f"connector-{self._host}", self._run, wake=self._wake.set)

    def request_stop(self) -> None:
        """Return at once; the thread announces its end to the peer and ends."""
        self._worker.request_stop()

    def kick(self) -> None:
        """Exchange at once, or a moment after the last time."""
        self._wake.set()

    def outcome(self) -> ExchangeOutcome:
        """Return how the last exchange went, and when the next one is."""
        return self._outcome

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            began = self._clock.monotonic()
            before, self._outcome = self._outcome, self._next_outcome()
            self._note(before)
            pause = self._outcome.due - self._clock.monotonic()
            self._clock.wait(self._wake, max(0.0, pause))
            rest = began + _SHORTEST_S - self._clock.monotonic()
            if rest > 0:
                self._clock.wait(stopping, rest)
            self._wake.clear()
        self._send_leave()
        self._exchange.close()

    def _next_outcome(self) -> ExchangeOutcome:
        try:
            known = self._knowledge.look()
            if known is None:
                return self._waiting("there is no view of the own cluster yet")
            outcome = self._exchanged(known)
            TOPOLOGY_EXCHANGES.labels("ok").inc()
        except Exception as error:
            TOPOLOGY_EXCHANGES.labels("failed").inc()
            outcome = self._failed(_words(error))
        return outcome

    def _exchanged(self, known: ClusterKnowledge) -> ExchangeOutcome:
        last = self._outcome
        longest = self._settings.longest_connector_interval_s
        promised = (
            longest
            if last.state in (ConnectorPhase.STANDBY, ConnectorPhase.LOOP)
            else known.interval_s
        )
        to_report = known.announcement(last.cluster_id, interval_s=promised)
        answer = self._exchange.put(to_report, known.now)
        self._remember(answer.owner)
        cluster = answer.local_cluster.id
        if answer.loop or is_loop(answer, known.own):
            return self._after(
                ConnectorPhase.LOOP, answer, "it leads back into the own cluster", longest
            )
        kept = kept_of(answer, known.own)
        standby = self._neighbours.is_overtaken(self, cluster)
        state = ConnectorPhase.STANDBY if standby else ConnectorPhase.CONNECTED
        own_s = self._settings.connector_interval_s if answer.reset_backoff else known.interval_s
        pause = pause_after(self._settings, state, own_s, answer.backoff_interval_s, 0)
        if (
            not standby
        ):  # of two instances, one may be behind: the other's word must not be replaced
            self._knowledge.hear(
                kept, holder=known.instance_id, address=self._host, backoff_s=pause
            )
        reason = "an earlier URL leads to the same cluster" if standby else ""
        return self._after(state, answer, reason, pause)

    def _remember(self, owner: str) -> None:
        """Note whose announcement to remove at the end; of too many, the others run out."""
        if len(self._owners) < _MOST_OWNERS:
            self._owners.add(owner)

    def _after(
        self, state: ConnectorPhase, answer: Announcement, reason: str, pause: float
    ) -> ExchangeOutcome:
        return ExchangeOutcome(
            state=state,
            reason=reason,
            instance_id=answer.owner,
            cluster_id=answer.local_cluster.id,
            interval_s=pause,
            succeeded_ms=self._clock.wall_ms(),
            due=self._clock.monotonic() + pause,
        )

    def _failed(self, reason: str) -> ExchangeOutcome:
        failures = self._outcome.failures + 1
        pause = pause_after(self._settings, ConnectorPhase.FAILED, 0.0, 0.0, failures)
        return replace(
            self._outcome,
            state=ConnectorPhase.FAILED,
            reason=reason,
            failures=failures,
            interval_s=pause,
            due=self._clock.monotonic() + pause,
        )

    def _waiting(self, reason: str) -> ExchangeOutcome:
        return replace(self._failed(reason), state=ConnectorPhase.WAITING, failures=0)

    def _note(self, before: ExchangeOutcome) -> None:
        now = self._outcome
        if before.works != now.works:
            self._neighbours.kick_later(self, now.cluster_id)
        if (before.state, before.cluster_id) == (now.state, now.cluster_id):
            return
        log = (
            logger.warning
            if now.state in (ConnectorPhase.FAILED, ConnectorPhase.LOOP)
            else logger.info
        )
        log(
            "a connector is %s",
            now.state,
            extra={"url": self.url, "reason": now.reason, "peer": now.instance_id},
        )

    def _send_leave(self) -> None:
        """Disconnect, if there was ever a connection; a peer that is away finds out by itself."""
        if not self._owners:
            return
        try:
            known = self._knowledge.look()
            if known is not None:
                self._exchange.delete(known.now)
        except (PackhorseError, *_DATABASE_AWAY) as error:
            logger.info(
                "a peer was not notified of the connector's end",
                extra={"url": self.url, "reason": str(error)},
            )
        for owner in self._owners:
            self._forget(owner)

    def _forget(self, owner: str) -> None:
        try:
            self._knowledge.forget(owner, holder=self._knowledge.topology.instance_id)
        except _DATABASE_AWAY:
            logger.info("an announcement is left to run out", extra={"peer": owner})


def _words(error: Exception) -> str:
    """Return the reason for operators; whatever a peer can bring about must not end the thread."""
    if isinstance(error, ExchangeFailed):
        return str(error)
    if isinstance(error, PackhorseError):
        return f"the peer's announcement is refused: {error}"
    if isinstance(error, _DATABASE_AWAY):
        return "the own database is away"
    logger.error("an exchange failed for a reason that nobody has foreseen", exc_info=error)
    return f"a fault of this program: {type(error).__name__}"
