"""The clusters beyond the own one, as its connectors have heard of them."""

import math
from collections.abc import Sequence
from contextlib import closing

import psycopg

from packhorse.clock import Clock, SystemClock
from packhorse.topology.announcement_store import AnnouncementReader
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.patience import bookkeeper_connection
from packhorse.topology.routing import Chooser
from packhorse.topology.view import ClusterView

_LOOK_S = 30.0
"""How often to look without a hint. Changes are signalled by hints, and hints may be lost."""


class SqlRemoteClusters:
    """Reads them from the cluster's database; used by one thread.

    One small statement a look, on a connection that is not kept: looks are rare, and each program
    of a cluster would hold one. Contents are read when they have changed.
    """

    def __init__(self, database_url: str, clock: Clock | None = None) -> None:
        self._url, self._clock = database_url, clock or SystemClock()
        self._fresh_until = -math.inf
        self._reader, self._chooser = AnnouncementReader(), Chooser()

    def clusters(self) -> Sequence[ClusterView]:
        """Return those that are announced now, by id, each once. Raises `StoreUnavailable`."""
        self._fresh_until = -math.inf
        try:
            with closing(bookkeeper_connection(self._url, "topology-remotes")) as connection:
                live = self._reader.read(connection)
        except psycopg.Error as error:
            raise StoreUnavailable(f"announcements can't be read: {error}") from error
        rest_s = min(_LOOK_S, max(0.0, live.until - live.now))
        self._fresh_until = self._clock.monotonic() + rest_s
        # Routes through the own cluster were left out before they were kept.
        return tuple(one.cluster for one in self._chooser.routes(live.heard, own_cluster=""))

    def is_fresh(self) -> bool:
        """Return whether a look now would show the same, unless a hint has come since the last."""
        return self._clock.monotonic() < self._fresh_until

    def close(self) -> None:
        """Do nothing: no connection is kept."""
