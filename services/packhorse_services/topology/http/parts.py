"""What the routes of the topology service ask; made once, found through the app."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fastapi import Request

from packhorse.clock import Clock
from packhorse.topology.discovery import Discovery
from packhorse_services.topology.connectors.states import ConnectorState
from packhorse_services.topology.http.event_feed import Feed
from packhorse_services.topology.http.schemas import ClusterViewDocument, VotingList

States = Callable[[], Sequence[ConnectorState]]


class Votings(Protocol):
    """What the voting store knows besides views."""

    def votings(self) -> VotingList:
        """Return the votings under way. Raises `StoreUnavailable`."""
        ...

    def start_voting(self) -> None:
        """Let the next heartbeat begin a new one."""
        ...


@dataclass(frozen=True, slots=True)
class TopologyServices:
    """`cluster_view` is there with the store `lease`, `votings` with the store `voting`."""

    discovery: Discovery
    feed: Feed
    clock: Clock
    connectors: States
    note_act: Callable[[], None]
    """Writes who has sent the present request, as a row of the audit."""
    cluster_view: Callable[[], ClusterViewDocument | None] | None = None
    votings: Votings | None = None


def of(request: Request) -> TopologyServices:
    """Return the parts of the service that answers."""
    parts: TopologyServices = request.app.state.parts
    return parts
