"""Makes the queues and schedules of a program where they are absent, once the database answers."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from packhorse.db.transactions import Connect, writing
from packhorse.errors import Transient
from packhorse.jobs.queue import QueueConfiguration
from packhorse.jobs.scheduling.definition import ScheduleDefinition, require_schedule
from packhorse.jobs.scheduling.store import declare_schedule
from packhorse.jobs.store.queues import declare_queue
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)

_RETRY_S = 2.0


@dataclass(frozen=True)
class Declared:
    """What is to be there; what an operator has changed since stays as it is."""

    queues: Sequence[QueueConfiguration] = ()
    schedules: Sequence[ScheduleDefinition] = ()


class Declarations(WorkerComponent):
    """A component; `done` is set once all are there. What is refused for good is its death."""

    def __init__(self, connect: Connect, declared: Declared) -> None:
        """Take them. Raises `InvalidSchedule`."""
        for schedule in declared.schedules:
            require_schedule(schedule)
        self._connect, self._declared = connect, declared
        self.done = threading.Event()
        self._outage = Outage(
            logger,
            "queues and schedules can't be declared now",
            "queues and schedules are declared",
        )
        self._worker = Worker("jobs-declare", self._run, may_end=True)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set() and not self._declare():
            stopping.wait(_RETRY_S)

    def _declare(self) -> bool:
        try:
            # Each alone: a fire time locks its schedule, and then asks for the queues.
            for queue in self._declared.queues:
                with writing(self._connect) as connection:
                    declare_queue(connection, queue)
            for schedule in self._declared.schedules:
                with writing(self._connect) as connection:
                    declare_schedule(connection, schedule)
        except (psycopg.Error, Transient) as error:
            self._outage.failed(error)
            return False
        self._outage.ended()
        self.done.set()
        return True
