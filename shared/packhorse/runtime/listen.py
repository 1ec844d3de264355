"""LISTEN: one listening connection for everybody in a process who waits for a database.

A hint says that looking is worth while now. Hints may be lost, so whoever gets them also looks
without one, now and then.
"""

import logging
import threading
from collections.abc import Callable, Iterable

import psycopg
from psycopg import Connection, sql

from packhorse.clock import SystemClock
from packhorse.db.bell import Bell
from packhorse.db.connect import connect, retry_pause_s
from packhorse.runtime.lifecycle import Worker, WorkerComponent

logger = logging.getLogger(__name__)

Callback = Callable[[str], None]
"""Gets what the hint says, or "" when any hint may have been missed; must return soon."""

_LOOK_S = 60.0


class Listener(WorkerComponent):
    """A component that calls back at every NOTIFY on the channels that somebody asked for.

    It connects by itself, again and again; each time all are called, because a hint may have been
    lost. All methods may be called by any thread.
    """

    def __init__(self, url: str, name: str = "packhorse-hints") -> None:
        self._url, self._name, self._clock = url, name, SystemClock()
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callback]] = {}
        self._bell = Bell()
        self._listening = False
        self._failures = 0
        self._worker = Worker("hints", self._run, wake=self._bell.ring)

    def on(self, channel: str, callback: Callback) -> None:
        """Call back at hints on a channel from now on, in the thread of the hints."""
        with self._lock:
            self._callbacks.setdefault(channel, []).append(callback)
        self._bell.ring()

    @property
    def listening(self) -> bool:
        """Whether hints are heard now."""
        return self._listening

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                with connect(self._url, self._name, autocommit=True) as connection:
                    self._listen(connection, stopping)
            except psycopg.Error as error:
                if self._listening:
                    logger.warning("no hints for now: %s", error)
            finally:
                self._listening = False
            self._failures += 1
            self._clock.wait(stopping, retry_pause_s(self._failures))
        self._bell.close()

    def _listen(self, connection: Connection, stopping: threading.Event) -> None:
        heard: set[str] = set()
        while not stopping.is_set():
            new = [channel for channel in self._channels() if channel not in heard]
            for channel in new:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            heard.update(new)
            self._listening, self._failures = True, 0
            said = {(hint.channel, hint.payload) for hint in connection.notifies(timeout=0)}
            self._call([*((channel, "") for channel in new), *sorted(said)])
            self._bell.wait(_LOOK_S, connection)

    def _channels(self) -> list[str]:
        with self._lock:
            return list(self._callbacks)

    def _call(self, said: Iterable[tuple[str, str]]) -> None:
        for channel, payload in said:
            with self._lock:
                callbacks = list(self._callbacks.get(channel, ()))
            for callback in callbacks:
                try:
                    callback(payload)
                except Exception:
                    logger.exception(
                        "a callback for hints of %s failed", channel, extra={"channel": channel}
                    )
