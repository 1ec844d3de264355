"""One librdkafka producer, the thread that serves it, and its end when it can't be trusted."""

import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, Message

from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    NotAppended,
    Outgoing,
    RecordTooLarge,
    topic_missing,
)
from packhorse.messaging.kafka.clients import Clients
from packhorse.messaging.kafka.errors import forbidden, is_forbidden, is_missing

logger = logging.getLogger(__name__)

_SERVE_SECONDS = 0.2
_PURGE_SECONDS = 5.0


class Link:
    """Sends records in order until the first failure, then gives up on everything it still has.

    So what it wrote of one thread's records to a partition is the beginning of them, without a
    gap, and a new link after it never writes behind a hole that nobody has been notified of.
    """

    def __init__(
        self, clients: Clients, delivery_seconds: float, on_stale: Callable[[str], None]
    ) -> None:
        """Take what to call with the name of a topic that is not as it was."""
        self._producer = clients.producer(self._on_error)
        self._delivery_seconds, self._on_stale = delivery_seconds, on_stale
        self._lock = threading.Lock()
        self._pending: deque[tuple[float, Future[Appended]]] = deque()
        self._fault: str | None = None
        self._complained = False
        """Whether the connection ever failed: a record may then have been written unnoticed."""
        self._closing, self._close_seconds = threading.Event(), 0.0
        self.broken_at: float | None = None
        self._thread = threading.Thread(target=self._serve, name="kafka-append", daemon=True)
        self._thread.start()

    def send(self, topic: str, partition: int, record: Outgoing, future: Future[Appended]) -> None:
        """Hand the record to librdkafka; `future` is settled by the link's thread.

        Raises `NotAppended`, `RecordTooLarge` or `TopicMissing` when it did not take the record.
        """
        with self._lock:
            if self.broken_at is not None:
                raise NotAppended("the connection to Kafka is being renewed; append again")
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    on_delivery=functools.partial(self._delivered, topic, future),
                    headers=dict(record.headers),
                )
            except (BufferError, KafkaException) as error:
                raise self._not_taken(error, topic) from error
            self._pending.append((time.monotonic() + self._delivery_seconds, future))

    def close(self, timeout: float) -> None:
        """Wait for the records it has, and give up on the rest; nobody may send any more."""
        self._close_seconds = timeout
        self._closing.set()
        self._thread.join()

    def _not_taken(self, error: BufferError | KafkaException, topic: str) -> Exception:
        if isinstance(error, BufferError):
            return NotAppended("too many appends are waiting for Kafka; wait for some of them")
        cause: KafkaError = error.args[0]
        if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return _too_large(topic)
        if is_missing(cause):
            return topic_missing(topic)
        self._fault = self._fault or cause.str()
        return NotAppended(f"Kafka's client did not take the record: {cause.str()}")

    def _serve(self) -> None:
        while self._fault is None and not self._closing.is_set():
            self._poll()
            if self._overdue():
                self._fault = f"no answer from Kafka for {self._delivery_seconds:g} s"
        if self._fault is None:
            self._drain(self._close_seconds)
        else:
            logger.warning("the Kafka producer is given up: %s", self._fault)
        self._give_up()

    def _poll(self) -> None:
        try:
            self._producer.poll(_SERVE_SECONDS)
        except KafkaException as error:  # this is how a fatal error is reported
            self._fault = self._fault or error.args[0].str()

    def _drain(self, seconds: float) -> None:
        # Not by `flush`: on a fatal error that runs our callbacks with an exception pending.
        deadline = time.monotonic() + seconds
        while len(self._producer) and time.monotonic() < deadline:
            self._poll()

    def _overdue(self) -> bool:
        while self._pending and self._pending[0][1].done():
            self._pending.popleft()
        return bool(self._pending) and self._pending[0][0] < time.monotonic()

    def _give_up(self) -> None:
        """Drop what is queued or on its way; nothing of it is sent later."""
        with self._lock:
            self.broken_at = time.monotonic()
        self._producer.purge()
        self._drain(_PURGE_SECONDS)
        self._producer.close()
        for _, future in self._pending:
            if not future.done():
                future.set_exception(_unknown(self._fault or "the connection was given up"))

    def _on_error(self, error: KafkaError) -> None:
        self._complained = True
        logger.debug("Kafka reports an error to a producer", extra={"reason": error.str()})

    def _delivered(
        self, topic: str, future: Future[Appended], error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            self._written(future, message)
        elif is_missing(error):
            self._on_stale(topic)
            future.set_exception(topic_missing(topic))
        else:
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self._on_stale(topic)
            self._fault = self._fault or _reason(topic, error)
            future.set_exception(self._failure(topic, error))

    def _failure(self, topic: str, error: KafkaError) -> Exception:
        """Return what a failure means; of a record that was dropped, why the link was given up."""
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return _too_large(topic)
        if is_forbidden(error) and not self._complained:
            return NotAppended(_reason(topic, error))
        dropped = error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
        return _unknown((self._fault if dropped else None) or _reason(topic, error))

    @staticmethod
    def _written(future: Future[Appended], message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None or offset < 0:
            # A repeat that the broker knew already: librdkafka has lost the first answer.
            future.set_exception(
                AppendUnknown(
                    "the record is in the log, but Kafka no longer says where; look for it"
                )
            )
        else:
            future.set_result(Appended(partition, offset))


def _reason(topic: str, error: KafkaError) -> str:
    return forbidden(topic, "Write") if is_forbidden(error) else error.str()


def _unknown(reason: str) -> AppendUnknown:
    return AppendUnknown(
        f"Kafka did not confirm the record ({reason}); look for it before appending it again"
    )


def _too_large(topic: str) -> RecordTooLarge:
    return RecordTooLarge(f"{topic} does not accept so large a record; put its body in a blob")
