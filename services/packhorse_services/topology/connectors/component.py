"""All connectors of a process, side by side: a dead peer delays nobody."""

from packhorse.topology.announcement_store import Peer
from packhorse.topology.events import TopologyEvent
from packhorse_services.topology.connectors.connector import Connector
from packhorse_services.topology.connectors.knowledge import Knowledge
from packhorse_services.topology.connectors.states import ConnectorPhase, ConnectorState

_GOODBYE_S = 5.0


class Connectors:
    """A component with a thread for each configured URL; without URLs it only shows who came.

    Each exchanges when it is due, and all at once when the topology changes. When the connector
    of an earlier URL fails, those that stood by for it are asked at once.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._clock = knowledge.clock
        bases = dict.fromkeys(knowledge.settings.connector_bases)
        self._connectors = [Connector(base, knowledge, self) for base in bases]
        knowledge.when_news(self._kick_others)

    def start(self) -> None:
        """Connect; returns at once."""
        if self._connectors:
            self._knowledge.topology.add_listener(self._hear)
        for connector in self._connectors:
            connector.start()

    def stop(self, timeout: float) -> None:
        """Disconnect from all peers at once; one that does not answer is left after a while."""
        until = self._clock.monotonic() + min(timeout, _GOODBYE_S)
        self._knowledge.topology.remove_listener(self._hear)
        for connector in self._connectors:
            connector.request_stop()
        for connector in self._connectors:
            connector.stop(max(0.0, until - self._clock.monotonic()))
        self._knowledge.pool.close()

    def failure(self) -> BaseException | None:
        """Return what ended one of the threads."""
        return next((found for one in self._connectors if (found := one.failure())), None)

    def kick(self) -> None:
        """Exchange with all peers now; those that stand by are left alone."""
        for connector in self._connectors:
            if connector.outcome().state not in (ConnectorPhase.STANDBY, ConnectorPhase.LOOP):
                connector.kick()

    def is_overtaken(self, connector: Connector, cluster: str) -> bool:
        """Return whether a connector with an earlier URL works and leads to that cluster."""
        earlier = self._connectors[: self._connectors.index(connector)]
        outcomes = [one.outcome() for one in earlier]
        return any(one.works and one.cluster_id == cluster for one in outcomes)

    def kick_later(self, connector: Connector, cluster: str) -> None:
        """Ask the later ones that lead to that cluster, to stand by or to step in."""
        for later in self._connectors[self._connectors.index(connector) + 1 :]:
            outcome = later.outcome()
            if outcome.works and outcome.cluster_id == cluster:
                later.kick()

    def states(self) -> list[ConnectorState]:
        """Return this process's connectors in their order, then what else the cluster has.

        Raises `psycopg.Error` or a pool's error when the database is away.
        """
        own = [self._state(connector) for connector in self._connectors]
        me = self._knowledge.topology.instance_id
        now_ms = self._clock.wall_ms()
        return own + [_kept(one, now_ms) for one in self._knowledge.peers() if one.holder != me]

    def _state(self, connector: Connector) -> ConnectorState:
        outcome = connector.outcome()
        return ConnectorState(
            direction="out",
            state=outcome.state,
            url=connector.url,
            holder=self._knowledge.topology.instance_id,
            instance_id=outcome.instance_id,
            cluster_id=outcome.cluster_id,
            address="",
            last_exchange_ms=outcome.succeeded_ms,
            next_exchange_in_s=outcome.due - self._clock.monotonic() if outcome.due else None,
            interval_s=outcome.interval_s,
            reason=outcome.reason,
        )

    def _hear(self, event: TopologyEvent) -> None:
        if event.new is not None:
            self.kick()

    def _kick_others(self, peer: str) -> None:
        for connector in self._connectors:
            outcome = connector.outcome()
            if outcome.instance_id != peer and outcome.state not in (
                ConnectorPhase.STANDBY,
                ConnectorPhase.LOOP,
            ):
                connector.kick()


def _kept(peer: Peer, now_ms: int) -> ConnectorState:
    """Return a connector that a peer has opened, or another instance of the cluster."""
    next_at = peer.received_at + peer.backoff_interval_s
    return ConnectorState(
        direction="out" if peer.holder else "in",
        state=ConnectorPhase.CONNECTED,
        url="",
        holder=peer.holder,
        instance_id=peer.owner,
        cluster_id=peer.cluster,
        address=peer.address,
        last_exchange_ms=int(peer.received_at * 1000),
        next_exchange_in_s=next_at - now_ms / 1000,
        interval_s=peer.backoff_interval_s,
        reason="",
    )
