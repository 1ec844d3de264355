"""New records announced by NOTIFY: a hint that saves waiting readers from asking often.

Nothing rests on it: a lost notification costs a reader one interval. It is sent after the
commit, in a transaction of its own, because commits that notify wait for each other.
"""

import threading
from collections.abc import Iterable

from packhorse.runtime.listen import Listener

_CHANNEL = "packhorse_journal"
LOOK_S = 10.0
"""How often a reader looks without a hint while hints are heard: one may be lost."""
_DEAF_INTERVAL_S = 0.2
_STOP_S = 10.0


def announcement(topic_ids: Iterable[int]) -> bytes:
    """Return the statement that tells listeners of this database of the topics' new records.

    Nobody waits for the disk: a notification is a transaction, and what it says is lost anyway
    when the server ends.
    """
    ids = b",".join(b"%d" % one for one in topic_ids)
    return (
        b"SELECT pg_notify('%b', id::text), set_config('synchronous_commit', 'off', true) "
        b"FROM unnest('{%b}'::bigint[]) AS id" % (_CHANNEL.encode(), ids)
    )


class JournalListener:
    """One listening connection for all readers of a journal, made when the first one waits."""

    def __init__(self, url: str, name: str) -> None:
        self._listener = Listener(url, name)
        self._lock = threading.RLock()
        self._changed: dict[str, threading.Condition] = {}
        """Of each topic that somebody waits for: an announcement wakes nobody else."""
        self._heard: dict[str, int] = {}
        self._started = self._closed = False

    def ticket(self, topic_id: int) -> int:
        """Return how often the topic was announced: take it before looking into the log."""
        with self._lock:
            self._changed.setdefault(str(topic_id), threading.Condition(self._lock))
            return self._heard.setdefault(str(topic_id), 0)

    def wait(self, topic_id: int, ticket: int, timeout: float, woken: threading.Event) -> None:
        """Return when the topic was announced after `ticket`, or when it is time to look anyway.

        Also when `woken` is set, of which `wake` is told.
        """
        with self._lock:
            self._start()
            interval = LOOK_S if self.listening else _DEAF_INTERVAL_S
            self._changed[str(topic_id)].wait_for(
                lambda: self._heard[str(topic_id)] != ticket or woken.is_set(),
                min(timeout, interval),
            )

    def wake(self) -> None:
        """Let all that wait look whether it is they who were woken."""
        with self._lock:
            for changed in self._changed.values():
                changed.notify_all()

    @property
    def listening(self) -> bool:
        """Whether hints are heard now."""
        return self._listener.listening

    def close(self) -> None:
        """End the listening thread; readers that go on ask every now and then."""
        with self._lock:
            self._closed = True
        self._listener.stop(_STOP_S)

    def _start(self) -> None:
        if not (self._started or self._closed):
            self._started = True
            self._listener.on(_CHANNEL, self._hear)
            self._listener.start()

    def _hear(self, payload: str) -> None:
        """Count what somebody waits for; anybody can send anything on a channel (R30)."""
        with self._lock:
            for topic_id in [payload] if payload else list(self._heard):
                if topic_id in self._heard:
                    self._heard[topic_id] += 1
                    self._changed[topic_id].notify_all()
