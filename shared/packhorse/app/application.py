"""`App`: registers what a program does, and runs it."""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from psycopg import Connection

from packhorse.app.configuration import AppConfiguration, configured
from packhorse.app.leading import Leadership
from packhorse.app.registered import RunningApp, running_app
from packhorse.app.registering import Registering
from packhorse.app.topology import Topology, announced
from packhorse.app.trial import Trial, tried
from packhorse.db.transactions import within
from packhorse.errors import Permanent
from packhorse.jobs import event_store
from packhorse.jobs.event import DISTRIBUTE, Event
from packhorse.jobs.event_store import NewEvent
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.store.adding import AddedJob
from packhorse.runtime import logs
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.runtime.signals import set_by_signals
from packhorse.runtime.startup import plain_refusals

logger = logging.getLogger(__name__)
_LOOK_S = 1.0


class AppNotRunning(Permanent):
    """The app has to run for this: use `with app.running():`, or `app.run()`."""


class App(Registering):
    """A program that takes part; register what it does, then `run` it.

        app = App("thumbnails")

        @app.consumer("images/thumbnail")
        def thumbnail(job): ...

        app.run()

    `name` is its role in the topology, and what its schedules' names begin with. The database is
    `database_url`, else PACKHORSE_DATABASE_URL, else that of the stack on the folder `data`; it is
    looked for when the app runs. `properties` are announced with the instance. `settings` are
    others by their names, such as `instance_id`.
    """

    def __init__(
        self,
        name: str,
        *,
        database_url: str | None = None,
        data: Path | str | None = None,
        properties: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """Connect to nothing yet."""
        super().__init__(name)
        self._registered.providers = announced(properties or {})
        self._given, self._data = {"database_url": database_url, **settings}, data
        self._running: RunningApp | None = None

    def leader(self, name: str) -> Leadership:
        """Return the right to do something that one instance may do at a time.

        While the app runs it is announced with the next heartbeat, and nobody's here before.
        """
        self._registered.leader_tasks.append(name)
        if self._running is not None:
            return self._running.topology.leader(name)
        return Leadership(name, lambda: self._now.topology.leader_task(name))

    def run(self) -> None:
        """Do all this until SIGINT or SIGTERM; jobs under way may end, those that do not go back.

        What keeps it from starting is said on standard error, and ends the program with 2 where
        somebody has to change something, with 1 where a later start may succeed. Raises
        `RuntimeError` when a part of it dies.
        """
        stopping = threading.Event()
        with plain_refusals():
            configuration = self.configuration()
            logs.configure(configuration.log_format, configuration.log_level)
            with set_by_signals(stopping), self._started(configuration) as lifecycle:
                logger.info("%s is ready as %s", self.name, self.topology.instance_id)
                while not stopping.wait(_LOOK_S):
                    lifecycle.check()

    @contextmanager
    def running(self) -> Iterator["App"]:
        """Do all this as long as the block goes on, for tests and web servers.

        Logging and signals stay as they are. Raises what keeps it from starting:
        `InvalidConfiguration`, `DatabaseUnavailable`, `DatabaseUnusable`.
        """
        with self._started(self.configuration()):
            yield self

    @contextmanager
    def _started(self, configuration: AppConfiguration) -> Iterator[Lifecycle]:
        if self._running is not None:
            raise Permanent(f"the app {self.name} runs already")
        running = running_app(configuration, self._registered)
        with Lifecycle(running.components) as lifecycle:
            self._running = running
            try:
                yield lifecycle
            finally:
                self._running = None

    def configuration(self) -> AppConfiguration:
        """Return the settings that it would run with. Raises `InvalidConfiguration`."""
        return configured(self._given, self._data)

    def test(self, topic: str, properties: Mapping[str, Any] | None = None) -> Trial:
        """Let the consumer of a topic do one job now, in this thread and without a database.

        `completion` and `check` of the context are not there then: use `running` for these.
        Raises `InvalidName`, and `Permanent` where no consumer takes the topic.
        """
        return tried(self._registered.all_consumers(), topic, properties or {})

    # What it asks of others.

    @property
    def jobs(self) -> Jobs:
        """All that can be done with jobs and queues. Raises `AppNotRunning`."""
        return self._now.host.jobs

    @property
    def topology(self) -> Topology:
        """Who lives, in which order, and what this instance announces. Raises `AppNotRunning`."""
        return self._now.topology

    def add(
        self,
        topic: str,
        properties: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word of the API
        connection: Connection | None = None,
        **options: Any,
    ) -> AddedJob:
        """Give a job; a topic and an `id` are one job, however often and where it is given.

        With a connection it is part of the caller's transaction, also while the app does not run.
        `options` are those of `Jobs.add_job`. Raises `AppNotRunning`, and as that does.
        """
        running = self._running  # it may end in another thread
        if running is None and connection is not None:
            jobs = Jobs(self._connect, self.name)
        else:
            jobs = (running or self._now).host.jobs
        return jobs.add_job(topic, properties, id, connection=connection, **options)

    def send(
        self,
        topic: str,
        properties: Mapping[str, Any] | None = None,
        *,
        everywhere: bool = False,
        connection: Connection | None = None,
    ) -> None:
        """Send an event to the handlers here, `everywhere` to those of every instance as well.

        With a connection it is part of the caller's transaction: every instance hears it once that
        commits. Raises `AppNotRunning`, and as `EventBus.send` does.
        """
        if connection is not None:
            running = self._running  # it may end in another thread
            sender = self.name if running is None else running.topology.instance_id
            event = NewEvent(topic, sender, properties or {}, echo=True)
            with within(connection) as bookkeeping:
                event_store.record(bookkeeping, [event])
            return
        mark = {DISTRIBUTE: True} if everywhere else {}
        self._now.host.events.send(Event(topic, {**(properties or {}), **mark}))

    def connection(self) -> AbstractContextManager[Connection]:
        """Lend a connection for a transaction of the program's own. Raises `AppNotRunning`."""
        return self._connect()

    def _connect(self) -> AbstractContextManager[Connection]:
        return self._now.topology.connection()

    @property
    def _now(self) -> RunningApp:
        if self._running is None:
            raise AppNotRunning(
                f"the app {self.name} does not run; use `with app.running():` or app.run()"
            )
        return self._running
