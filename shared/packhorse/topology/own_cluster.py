"""The cluster that a program is part of: what it announces there, and its leader tasks.

A topology that is away stops no program: it is logged, and the leader tasks are nobody's meanwhile.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from psycopg import Connection

import packhorse
from packhorse.db.run_sessions import tie_session
from packhorse.db.transactions import Connect
from packhorse.topology import properties
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.discovery import Discovery
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.leader import (
    ElectionOrder,
    LeaderOnly,
    LeaseElectionOrder,
    VotingElectionOrder,
)
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.open import open_discovery
from packhorse.topology.properties import FixedProperties, ProcessProperties, PropertyProvider
from packhorse.topology.view import InstanceDescription, TopologyView
from packhorse.topology.voting.member import VotingMember


@dataclass(frozen=True, slots=True)
class InstanceProperties:
    """What a program says of itself; empty is not said."""

    role: str
    agent: str = ""
    endpoint: str = ""
    leader_tasks: tuple[str, ...] = ()
    """The leader-only work that it can do."""

    def properties(self) -> Mapping[str, str | None]:
        """Return it as properties of the instance, with the version of this build."""
        return {
            properties.ROLE: self.role,
            properties.AGENT: self.agent or None,
            properties.ENDPOINT: self.endpoint or None,
            properties.LEADER_TASKS: ",".join(self.leader_tasks) or None,
            properties.VERSION: packhorse.__version__,
        }


class OwnCluster:
    """A component, to be started before what has a leader task: it leaves after that has ended."""

    def __init__(self, discovery: Discovery) -> None:
        self.discovery = discovery
        self._election_order = _election_order(discovery)

    def start(self) -> None:
        """Begin to take part; returns at once, whether the database answers or not."""
        self.discovery.start()

    def stop(self, timeout: float) -> None:
        """Leave the cluster."""
        self.discovery.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what ended one of its threads, which a database that is away does not."""
        return self.discovery.failure()

    def leader_task(self, name: str, connect: Connect) -> LeaderOnly:
        """Return a leader task that this program announces; `connect` is a pool's `connection`."""
        return LeaderOnly(name, self._election_order, connect)

    def holder(self, leader_task: str) -> InstanceDescription | None:
        """Return who has a leader task by the current view; None when that is not known now.

        Good for a preference. Work that must not be done twice asks `leader_task`.
        """
        view = self.discovery.current_view()
        return None if view is None else first_with(view, leader_task)

    def tie_session(self, connection: Connection) -> None:
        """Let the session end when this run is declared dead; it is closed when that fails."""
        try:
            tie_session(connection, self._election_order.runtime_id)
        except BaseException:
            connection.close()
            raise

    def on_change(self, act: Callable[[], None]) -> None:
        """Call `act` whenever there is another view that holds; it must return soon."""

        def hear(event: TopologyEvent) -> None:
            if event.kind is not EventKind.CHANGING:
                act()

        self.discovery.add_listener(hear)


def join(
    database_url: str,
    settings: TopologyConfiguration,
    announced: InstanceProperties,
    providers: Iterable[PropertyProvider] = (),
) -> OwnCluster:
    """Return the program's part in the cluster of a database; nothing connects before its start.

    `providers` give more properties. Raises `InvalidConfiguration` when the id file can't be used.
    """
    fixed = FixedProperties(announced.properties())
    return OwnCluster(
        open_discovery(database_url, settings, [fixed, ProcessProperties(), *providers])
    )


def _election_order(discovery: Discovery) -> ElectionOrder:
    member = discovery.membership
    if isinstance(member, LeaseMember):
        return LeaseElectionOrder(member.instance_id, member.runtime_id)
    if isinstance(member, VotingMember):
        return VotingElectionOrder(member.instance_id, member.runtime_id)
    raise AssertionError(f"{type(member).__name__} has no election order")


def first_with(view: TopologyView, leader_task: str) -> InstanceDescription | None:
    """Return the first instance of a view that announces a leader task; None without one."""
    able = (one for one in view.local_cluster.instances if leader_task in _leader_tasks(one))
    return next(able, None)


def _leader_tasks(instance: InstanceDescription) -> set[str]:
    reported = instance.properties.get(properties.LEADER_TASKS, "")
    return {name.strip() for name in reported.split(",")}
