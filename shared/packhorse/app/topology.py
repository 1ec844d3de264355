"""`Topology`: a program's part in the topology of its database's cluster."""

import threading
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

from psycopg import Connection

from packhorse.app.configuration import AppConfiguration, configured
from packhorse.app.leading import Leadership
from packhorse.db.pool import SharedPool
from packhorse.db.prepare import prepare_database
from packhorse.db.transactions import Connect
from packhorse.jobs.consumer import require_consumer
from packhorse.runtime.lifecycle import STOP_TIMEOUT_S, stop_all
from packhorse.topology import properties as names
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.leader import LeaderOnly
from packhorse.topology.listeners import Listener
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from packhorse.topology.properties import FixedProperties, PropertyProvider, check_property
from packhorse.topology.view import TopologyView

_CONNECTIONS = 8
"""For the program's own transactions, and for its leader tasks."""

ListenerT = TypeVar("ListenerT", bound=Listener)


class LeaderTasks:
    """A provider of the leader tasks that a program can do, which may become more."""

    ranking = 1
    """Above the program's own properties: another list would take them from it."""

    def __init__(self, tasks: Iterable[str]) -> None:
        self._tasks = tuple(tasks)

    def add(self, name: str) -> None:
        """Announce one more from the next heartbeat on."""
        if name not in self._tasks:
            self._tasks = (*self._tasks, name)

    def properties(self) -> Mapping[str, str | None]:
        """Return them as the property that the cluster reads."""
        return {names.LEADER_TASKS: ",".join(self._tasks) or None}


class Topology:
    """A program in the cluster of its database: who else lives, in which order, and who leads.

        with Topology("web", properties={"rack": "7"}) as topology:
            topology.on_change(lambda event: print(event.kind, event.new))

    `role` is what it is; `properties` are announced beside it, and so is what `providers` give
    when they are asked, before each heartbeat (`packhorse.topology.properties`). The database and
    the other settings are found as an `App` finds them. A database that goes away later is waited
    for: nothing is current meanwhile.

    Raises `InvalidConfiguration` and `InvalidProperty`.
    """

    def __init__(
        self,
        role: str,
        *,
        properties: Mapping[str, str] | None = None,
        providers: Iterable[PropertyProvider] = (),
        database_url: str | None = None,
        data: Path | str | None = None,
        **settings: Any,
    ) -> None:
        """Connect to nothing yet."""
        given = {"database_url": database_url, **settings}
        self._begin(configured(given, data), role, (*announced(properties or {}), *providers))

    @classmethod
    def of(
        cls,
        configuration: AppConfiguration,
        role: str,
        providers: Iterable[PropertyProvider],
        leader_tasks: Iterable[str],
    ) -> Self:
        """Return the part of a program whose settings are known."""
        made = cls.__new__(cls)
        made._begin(configuration, role, tuple(providers), leader_tasks)
        return made

    def _begin(
        self,
        configuration: AppConfiguration,
        role: str,
        providers: Iterable[PropertyProvider],
        leader_tasks: Iterable[str] = (),
    ) -> None:
        url = configuration.database_url
        self._url, self._role, self._leader_tasks = url, role, LeaderTasks(leader_tasks)
        self.pool = SharedPool(url, role)
        self._own = self.pool.share(_CONNECTIONS)
        says = InstanceProperties(role, endpoint=configuration.endpoint)
        self.cluster: OwnCluster = join(url, configuration, says, (*providers, self._leader_tasks))
        self._current = threading.Event()
        self.cluster.discovery.add_listener(self._hear)

    # It takes part as a component, or as long as a block goes on.

    def start(self) -> None:
        """Bring the database to the newest schema and begin to take part.

        Raises `DatabaseUnavailable`, `DatabaseUnusable`. Nothing is raised when the database is
        lost later: that is waited for.
        """
        prepare_database(self._url, self._role, setting="database_url= or PACKHORSE_DATABASE_URL")
        self.pool.start()
        self.cluster.start()

    def stop(self, timeout: float) -> None:
        """Leave the cluster: the others know at once."""
        stop_all((self.cluster, self.pool), timeout)

    def failure(self) -> BaseException | None:
        """Return what ended its part in the cluster, which a database that is away does not."""
        return self.cluster.failure()

    def close(self) -> None:
        """Leave the cluster; it can't be started again."""
        self.stop(STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Who lives.

    @property
    def instance_id(self) -> str:
        """The persistent id of this instance."""
        return self.cluster.discovery.instance_id

    def is_current(self) -> bool:
        """Return whether `view` may be relied on now: it has not run out and nothing changes."""
        return self.cluster.discovery.is_current()

    def view(self) -> TopologyView | None:
        """Return the last known view, current or not; None before the first."""
        return self.cluster.discovery.view()

    def current_view(self, wait: float = 0.0) -> TopologyView | None:
        """Return the view if it may be relied on, else None; waits for one up to `wait` seconds."""
        if wait > 0:
            self._current.wait(wait)
        return self.cluster.discovery.current_view()

    def on_change(self, listener: ListenerT) -> ListenerT:
        """Let a function hear INIT once there is a view, then every change; may be a decorator.

        It is called in a thread of its own. Raises `InvalidConsumer`, for an `async def`.
        """
        require_consumer(listener)
        self.cluster.discovery.add_listener(listener)
        return listener

    def _hear(self, event: TopologyEvent) -> None:
        if event.kind is EventKind.CHANGING:
            self._current.clear()
        else:
            self._current.set()

    # What it announces.

    def set_property(self, name: str, value: str) -> None:
        """Announce a property of this instance, over every provider's. Raises `InvalidProperty`."""
        self.cluster.discovery.set_property(name, value)

    def remove_property(self, name: str) -> bool:
        """Take back what `set_property` announced; false when it did not."""
        return self.cluster.discovery.remove_property(name)

    def properties(self) -> Mapping[str, str]:
        """Return what this instance announces."""
        return self.cluster.discovery.properties()

    def leader(self, name: str) -> Leadership:
        """Return the right to do something that one instance may do at a time.

        It is announced with the next heartbeat, and nobody's here before. `name` has no comma.
        """
        self._leader_tasks.add(name)
        self.cluster.discovery.wake()
        return Leadership(name, lambda: self.leader_task(name))

    def leader_task(self, name: str) -> tuple[LeaderOnly, Connect]:
        """Return a leader task that it announces, and what lends the connection for its work."""
        return self.cluster.leader_task(name, self.connection), self.connection

    def connection(self) -> AbstractContextManager[Connection]:
        """Lend a connection for a transaction of the program's own."""
        return self._own.connection()


def announced(properties: Mapping[str, str]) -> tuple[PropertyProvider, ...]:
    """Return what gives a program's own properties. Raises `InvalidProperty`."""
    for name, value in properties.items():
        check_property(name, value)
    return (FixedProperties(properties, ranking=-1),) if properties else ()
