"""The clusters beyond the own one, as its connectors have heard of them."""

import contextlib
from collections.abc import Sequence

import psycopg

from packhorse.topology.announcement_store import AnnouncementReader
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.patience import PatientConnection, bookkeeper_connection
from packhorse.topology.routing import Chooser
from packhorse.topology.view import ClusterView


class SqlRemoteClusters:
    """Reads them from the cluster's database; used by one thread.

    One small statement a look: contents are read when they have changed.
    """

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._reader, self._chooser = AnnouncementReader(), Chooser()
        self._connection: PatientConnection | None = None

    def clusters(self) -> Sequence[ClusterView]:
        """Return those that are announced now, by id, each once. Raises `StoreUnavailable`."""
        try:
            if self._connection is None:
                self._connection = bookkeeper_connection(self._url, "topology-remotes")
            live = self._reader.read(self._connection)
        except psycopg.Error as error:
            self.close()
            raise StoreUnavailable(f"announcements can't be read: {error}") from error
        # Routes through the own cluster were left out before they were kept.
        return tuple(one.cluster for one in self._chooser.routes(live.heard, own_cluster=""))

    def close(self) -> None:
        """End the connection; `clusters` opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()
