"""Appends: which partition, is it small enough, and over which link to Kafka."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from packhorse.errors import PackhorseError
from packhorse.messaging.api import (
    Appended,
    NotAppended,
    Outgoing,
    RecordTooLarge,
    TopicMissing,
    partition_for,
)
from packhorse.messaging.kafka.clients import BATCH_BYTES
from packhorse.messaging.kafka.link import Link

_PAUSE_SECONDS = 1.0
"""How long appends are refused after a link broke.

A thread in the middle of its batch then fails to the end of it, instead of writing the batch's
second half over a new link behind a first half that was lost.
"""
_MAX_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What an append has to know of its topic; `max_value_bytes` is None when Kafka keeps it."""

    partitions: int
    max_value_bytes: int | None


class KafkaAppender:
    """Appends without ever waiting: records to a topic not yet known are sent once it is."""

    def __init__(
        self, open_link: Callable[[Callable[[str], None]], Link], shape: Callable[[str], TopicShape]
    ) -> None:
        self._open_link, self._look_up = open_link, shape
        self._lock = threading.RLock()  # settling a future may append again in the same thread
        self._shapes: dict[str, TopicShape] = {}
        self._waiting: dict[str, list[tuple[Outgoing, Future[Appended]]]] = {}
        self._lookups: dict[str, threading.Thread] = {}
        self._link: Link | None = None
        self._closed = False

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        """Start to append; a future that began can't be cancelled, as a record can't be."""
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            shape = self._shapes.get(topic)
            if shape is not None and topic not in self._waiting:
                self._send(topic, shape, record, future)
            else:
                self._wait(topic, record, future)
        return future

    def shape(self, topic: str) -> TopicShape:
        """Return what is known of the topic, asking Kafka the first time."""
        with self._lock:
            known = self._shapes.get(topic)
        if known is None:
            known = self._look_up(topic)
            with self._lock:
                known = self._shapes.setdefault(topic, known)
        return known

    def close(self, timeout: float) -> None:
        """Wait for pending appends, then refuse new ones."""
        deadline = time.monotonic() + timeout
        for lookup in list(self._lookups.values()):
            lookup.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._closed, link, self._link = True, self._link, None
        if link is not None:
            link.close(max(0.0, deadline - time.monotonic()))

    def _send(
        self, topic: str, shape: TopicShape, record: Outgoing, future: Future[Appended]
    ) -> None:
        try:
            self._check_size(topic, shape, record)
            link = self._usable_link()
            link.send(topic, partition_for(record.key, shape.partitions), record, future)
        except PackhorseError as error:
            future.set_exception(error)

    def _check_size(self, topic: str, shape: TopicShape, record: Outgoing) -> None:
        limit = shape.max_value_bytes
        if limit is not None and len(record.value) > limit:
            self._forget(topic)  # the next append asks whether the limit was raised meanwhile
            raise RecordTooLarge(
                f"{len(record.value)} bytes are more than the {limit} that {topic} accepts, its "
                f"max.message.bytes less {BATCH_BYTES}; put the body in the blob store, or raise "
                "the setting (`packhorse topics check` says to what)"
            )

    def _usable_link(self) -> Link:
        if self._closed:
            raise NotAppended("the journal is closed; open it again")
        broken_at = self._link.broken_at if self._link else None
        if broken_at is not None:
            if time.monotonic() < broken_at + _PAUSE_SECONDS:
                raise NotAppended("Kafka has just failed to confirm a record; append again soon")
            self._link = None
        if self._link is None:
            self._link = self._open_link(self._forget)
        return self._link

    def _forget(self, topic: str) -> None:
        with self._lock:
            self._shapes.pop(topic, None)

    def _wait(self, topic: str, record: Outgoing, future: Future[Appended]) -> None:
        if topic not in self._lookups and not self._begin_lookup(topic, future):
            return
        waiting = self._waiting.setdefault(topic, [])
        if len(waiting) >= _MAX_WAITING:
            future.set_exception(NotAppended(f"too many appends wait to find topic {topic}"))
            return
        waiting.append((record, future))

    def _begin_lookup(self, topic: str, future: Future[Appended]) -> bool:
        """Return whether it began; `future` fails where nothing may be appended now."""
        try:
            link = self._usable_link()
        except PackhorseError as error:
            future.set_exception(error)
            return False
        lookup = threading.Thread(target=self._find, args=(topic, link), daemon=True)
        lookup.start()  # it needs our lock before it ends
        self._lookups[topic] = lookup
        return True

    def _find(self, topic: str, link: Link) -> None:
        """Send what waits over `link`: over a later one it would follow what that has lost."""
        shape: TopicShape | None = None
        failure: PackhorseError = NotAppended(f"topic {topic} could not be looked up")
        try:
            shape = self.shape(topic)
        except TopicMissing as missing:
            failure = missing
        except PackhorseError as error:
            failure = NotAppended(f"nothing was appended: {error}")
        finally:
            with self._lock:
                if shape and (self._link is not link or link.broken_at is not None):
                    shape, failure = None, NotAppended("the connection has ended; append again")
                del self._lookups[topic]
                for record, future in self._waiting.pop(topic):
                    if shape is None:
                        future.set_exception(failure)
                    else:
                        self._send(topic, shape, record, future)
