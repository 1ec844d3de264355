"""Single records by their offset."""

import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from packhorse.messaging.api import JournalUnavailable, Record
from packhorse.messaging.kafka.clients import Clients
from packhorse.messaging.kafka.errors import translated
from packhorse.messaging.kafka.inquiry import ANSWER_SECONDS, Inquiry
from packhorse.messaging.kafka.records import as_record

_NOTHING_THERE = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})


class Lookup:
    """Reads one record at a time over one connection, which it opens when first asked."""

    def __init__(self, clients: Clients, inquiry: Inquiry) -> None:
        self._clients, self._inquiry = clients, inquiry
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def read(self, topic: str, offset: int, partition: int) -> Record | None:
        """Return the record at exactly `offset`, or None. Raises `JournalUnavailable`."""
        bounds = self._inquiry.bounds(topic, partition)
        if not bounds.oldest <= offset < bounds.next:
            return None
        with self._lock:
            self._consumer = self._consumer or self._clients.lookup(lambda _: None)
            self._consumer.assign([TopicPartition(topic, partition, offset)])
            try:
                message = self._first(self._consumer, topic)
            finally:
                self._consumer.unassign()
        if message is None or message.offset() != offset:
            return None
        return as_record(message)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    @staticmethod
    def _first(consumer: Consumer, topic: str) -> Message | None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            error = message.error() if message else None
            if error is None and message is not None:
                return message
            if error is not None and error.code() in _NOTHING_THERE:
                return None
            if error is not None and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise translated(error, topic)
        raise JournalUnavailable(f"Kafka did not answer about {topic}; try again")
