"""New records announced by NOTIFY: a hint that saves waiting readers from asking often.

Nothing rests on it: a lost notification costs a reader one interval. It is sent after the
commit, in a transaction of its own, because commits that notify wait for each other.
"""

import logging
import selectors
import socket
import threading
from collections.abc import Iterable, Sequence

import psycopg

from packhorse.messaging.api import JournalUnavailable
from packhorse.messaging.sql.session import Session

logger = logging.getLogger(__name__)

_CHANNEL = "packhorse_journal"
_LISTENING_INTERVAL_S = 1.0
_DEAF_INTERVAL_S = 0.2


def announce(connection: psycopg.Connection, topic_ids: Iterable[int]) -> None:
    """Tell every listener of this database that the topics have new records."""
    connection.execute(
        "SELECT pg_notify(%s, id::text) FROM unnest(%s::bigint[]) AS id",
        (_CHANNEL, list(topic_ids)),
    )


class Hints:
    """One listening connection for all readers of a journal, made when the first one waits."""

    def __init__(self, url: str, name: str) -> None:
        self._session = Session(url, name)
        self._changed = threading.Condition()
        self._heard: dict[str, int] = {}
        self._listening = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None

    def ticket(self, topic_id: int) -> int:
        """Return how often the topic was announced: take it before looking into the log."""
        with self._changed:
            return self._heard.setdefault(str(topic_id), 0)

    def wait(self, topic_id: int, ticket: int, timeout: float) -> None:
        """Return when the topic was announced after `ticket`, or when it is time to look anyway."""
        with self._changed:
            self._start()
            interval = _LISTENING_INTERVAL_S if self._listening else _DEAF_INTERVAL_S
            self._changed.wait_for(
                lambda: self._heard[str(topic_id)] != ticket, min(timeout, interval)
            )

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._bell = socket.socketpair()
            self._thread = threading.Thread(
                target=self._run, args=(self._bell[1],), name="journal-hints", daemon=True
            )
            self._thread.start()

    def _run(self, bell: socket.socket) -> None:
        while not self._closed:
            try:
                with self._session.use() as connection:
                    self._listen(connection, bell)
            except JournalUnavailable as error:
                if self._listening:
                    logger.warning("no hints for now; readers ask often", extra={"error": error})
            self._listening = False
            with self._changed:
                self._changed.wait_for(lambda: self._closed, self._session.pause_s)

    def _listen(self, connection: psycopg.Connection, bell: socket.socket) -> None:
        connection.execute(f"LISTEN {_CHANNEL}")
        self._listening = True
        self._hear(list(self._heard))  # whatever came while nobody listened
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(bell, selectors.EVENT_READ)
            while not self._closed:
                selector.select()
                self._hear([hint.payload for hint in connection.notifies(timeout=0)])

    def _hear(self, payloads: Sequence[str]) -> None:
        """Count what somebody waits for; anybody can send anything on a channel (R30)."""
        with self._changed:
            for topic_id in payloads:
                if topic_id in self._heard:
                    self._heard[topic_id] += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the listening thread; readers that go on ask every now and then."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            bell, self._bell = self._bell, None
        if self._thread is not None and bell is not None:
            bell[0].send(b"x")
            self._thread.join()
            bell[0].close()
            bell[1].close()
        self._session.close()
