"""Jobs that only one instance may do, when it has left for good: they end as DROPPED."""

import logging
from collections.abc import Callable, Collection

from psycopg import Connection

from packhorse.clock import Clock, SystemClock
from packhorse.db.transactions import Connect, reading, writing
from packhorse.jobs.job import JobState
from packhorse.jobs.ledger.waiting import named_instances
from packhorse.jobs.store.claims import promote
from packhorse.jobs.store.finishing import end_waiting
from packhorse.topology.view import TopologyView

logger = logging.getLogger(__name__)


class Absences:
    """Remembers since when instances that jobs name are away; time is a parameter.

    Whoever begins to watch gives everybody the whole patience again, so that a restart of the
    watcher never shortens it.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: dict[str, float] = {}

    def departed(self, named: Collection[str], live: Collection[str], now: float) -> frozenset[str]:
        """Return those of `named` that have been away for `patience_s`; `now` is monotonic.

        `live` are the instances of a view that is current. Who was seen, or is no longer named,
        begins anew.
        """
        away = frozenset(named) - frozenset(live)
        self._since = {one: self._since.get(one, now) for one in away}
        return frozenset(one for one in away if now - self._since[one] >= self._patience_s)


PATIENCE_S = 600.0
"""How long an instance may be away, for a restart or an update, before its jobs are dropped."""
_BATCH = 500
_TOPICS = 50
_REASON = "meant for an instance that has left"


class Departures:
    """Drops what waits for instances that no view has had for long; `drop` is for one thread."""

    def __init__(
        self,
        connect: Connect,
        current_view: Callable[[], TopologyView | None],
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
    ) -> None:
        """Take where to ask for the view, such as `Discovery.current_view`."""
        self._connect, self._current_view = connect, current_view
        self._clock = clock or SystemClock()
        self._absences = Absences(patience_s)

    def drop(self, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Look once; return how many jobs were dropped. Without a current view nothing is.

        `meanwhile` is called after each batch. What was delayed until now counts as waiting.
        """
        self._promote(meanwhile)
        view = self._current_view()
        if view is None:
            return 0
        with reading(self._connect) as connection:
            named = named_instances(connection)
        left = self._absences.departed(named, view.local_cluster.ids, self._clock.monotonic())
        return sum(self._drop_all(instance, meanwhile) for instance in sorted(left))

    def _promote(self, meanwhile: Callable[[], None]) -> None:
        """Also of topics that nobody claims jobs of; each statement changes a bounded number."""
        with reading(self._connect) as connection:
            topics = [topic for (topic,) in connection.execute("SELECT topic FROM jobs.topic")]
        for first in range(0, len(topics), _TOPICS):
            more = True
            while more:
                with writing(self._connect) as connection:
                    more = promote(connection, topics[first : first + _TOPICS])
                meanwhile()

    def _drop_all(self, instance: str, meanwhile: Callable[[], None]) -> int:
        dropped = 0
        while True:
            with writing(self._connect) as connection:
                numbers = _waiting_for(connection, instance)
                ended = end_waiting(connection, numbers, JobState.DROPPED, _REASON)
            dropped += len(ended)
            meanwhile()
            if len(numbers) < _BATCH or not ended:
                break
        if dropped:
            reported = {"of": instance, "dropped": dropped}
            logger.warning(
                "%d jobs that only %s may do were dropped, for it has left",
                dropped,
                instance,
                extra=reported,
            )
        return dropped


def _waiting_for(connection: Connection, instance: str) -> list[int]:
    """Return jobs that nobody else may ever do; a mere preference ends by itself."""
    rows = connection.execute(
        """
        SELECT waits.number FROM jobs.topic t CROSS JOIN LATERAL (
            SELECT number FROM jobs.job j
            WHERE j.topic = t.topic AND only_on = %s AND state = 'QUEUED' AND NOT delayed
                AND open_at IS NULL
            LIMIT %s) AS waits
        LIMIT %s
        """,
        (instance, _BATCH, _BATCH),
    )
    return [number for (number,) in rows]
