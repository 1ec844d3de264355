"""Single records by their offset."""

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from packhorse.messaging.api import JournalUnavailable, Record, damaged
from packhorse.messaging.kafka.clients import ANSWER_SECONDS, Clients, close_after_damage
from packhorse.messaging.kafka.errors import is_damage, translated
from packhorse.messaging.kafka.inquiry import Inquiry
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
            place = TopicPartition(topic, partition, offset)
            try:
                message = self._at(place)
                if message is None:
                    # A consumer reports a damaged batch once and passes it from then on, so that
                    # only a new one knows damage from an offset without a record.
                    self._drop(place)
                    message = self._at(place)
            except KafkaException as error:  # the batch that holds the offset
                self._drop(place)
                return damaged(topic, partition, offset, error.args[0].str())
        return None if message is None else as_record(message)

    def _at(self, place: TopicPartition) -> Message | None:
        """Return the message at just this place. Raises `KafkaException` for damage."""
        self._consumer = self._consumer or self._clients.lookup(lambda _: None)
        self._consumer.assign([place])
        try:
            message = self._first(self._consumer, place.topic)
        finally:
            self._consumer.unassign()
        return message if message is not None and message.offset() == place.offset else None

    def _drop(self, damaged_at: TopicPartition) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            close_after_damage(consumer, damaged_at)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    @staticmethod
    def _first(consumer: Consumer, topic: str) -> Message | None:
        """Return what comes first, None for the log's end. Raises `KafkaException` for damage."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            error = message.error() if message else None
            if error is None and message is not None:
                return message
            if error is not None and error.code() in _NOTHING_THERE:
                return None
            if error is not None and is_damage(error):
                raise KafkaException(error)
            if error is not None and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise translated(error, topic)
        raise JournalUnavailable(f"Kafka did not answer about {topic}; try again")
