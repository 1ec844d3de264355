"""The Kafka journal: the port's promises put together from appends, readers and questions."""

import functools
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from packhorse.messaging.api import (
    Appended,
    Bounds,
    JournalUnavailable,
    LogEnd,
    Outgoing,
    Position,
    Record,
    TopicSpec,
    damaged,
    partition_for,
)
from packhorse.messaging.kafka.address import parse_address
from packhorse.messaging.kafka.appending import KafkaAppender
from packhorse.messaging.kafka.clients import ANSWER_SECONDS, Clients, close_after_damage
from packhorse.messaging.kafka.errors import is_damage, translated
from packhorse.messaging.kafka.inquiry import RETENTION, Inquiry
from packhorse.messaging.kafka.link import Link
from packhorse.messaging.kafka.provision import Provision
from packhorse.messaging.kafka.reading import KafkaReader
from packhorse.messaging.kafka.records import as_record

_NOTHING_THERE = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})


class KafkaJournal:
    """A `Journal` on the brokers of a `kafka://` URL; it connects when first used.

    Raises `BadKafkaUrl` for a URL or a setting that can't be used.
    """

    def __init__(self, url: str, client_name: str) -> None:
        address = parse_address(url)
        self._clients = Clients(address, client_name)
        self._inquiry = Inquiry(self._clients)
        self._provision = Provision(self._inquiry)
        self._lookup = Lookup(self._clients, self._inquiry)
        link = functools.partial(Link, self._clients, address.delivery_seconds)
        self._appender = KafkaAppender(link, self._inquiry.shape)

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        """Start to add the record; the future is done once every in-sync replica has it."""
        return self._appender.append(topic, record)

    def reader(
        self,
        topic: str,
        start: Position | Mapping[int, Position],
        *,
        partition: int | None = None,
        values: bool = True,
    ) -> KafkaReader:
        """Open a reader; Kafka sends bodies in any case, `values` only says who keeps them.

        Raises `TopicMissing`, and `JournalUnavailable` when Kafka is needed and away.
        """
        reader = KafkaReader(self._clients, self._inquiry, topic, values=values)
        try:
            every = range(self.partitions(topic)) if partition is None else [partition]
            for number in every:
                wanted = start.get(number, LogEnd.OLDEST) if isinstance(start, Mapping) else start
                reader.seek(wanted, number)
        except BaseException:
            reader.close()
            raise
        return reader

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        """Return the record at `offset`, or None."""
        return self._lookup.read(topic, offset, partition)

    def bounds(
        self,
        topic: str,
        partition: int = 0,
        *,
        after_appends: bool = False,  # noqa: ARG002 - a broker does not say what it has not read
    ) -> Bounds:
        """Return the partition's bounds; transactions of others may have used up offsets."""
        return self._inquiry.bounds(topic, partition)

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int:
        """Return the first offset whose record is not older than `time_ms`, else the next."""
        return self._inquiry.offset_at(topic, time_ms, partition)

    def truncate(self, topic: str, before: int, partition: int = 0) -> None:
        """Remove every record below `before`. Raises `OffsetOutOfRange` beyond the end."""
        self._inquiry.truncate(topic, before, partition)

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has now."""
        return len(self._inquiry.describe(topic).partitions)

    def partition_of(self, topic: str, key: str) -> int:
        """Return the partition of `key`, from the same function that `append` uses."""
        return partition_for(key, self._appender.shape(topic).partitions)

    def identity(self, topic: str) -> str:
        """Return the cluster's id and the topic's."""
        return self._inquiry.identity(topic)

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """Create the topics that do not exist and wait until they can be used."""
        self._provision.create(topics)

    def check_topics(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Return one sentence for each fault, with the command that mends it."""
        return self._provision.check(topics)

    def retention_ms(self, topic: str) -> int:
        """Return the topic's `retention.ms`."""
        return int(self._inquiry.settings(topic)[RETENTION])

    def retain(self, topic: str, retention_ms: int) -> None:
        """Set the topic's `retention.ms`; brokers remove whole segments, some minutes later."""
        self._inquiry.retain(topic, retention_ms)

    def enforce_retention(self) -> None:
        """Do nothing: the brokers remove old segments themselves, by `retention.ms`."""

    def close(self, timeout: float = 10.0) -> None:
        """Wait for pending appends up to `timeout` seconds; fail the rest as `AppendUnknown`."""
        self._appender.close(timeout)
        self._lookup.close()
        self._inquiry.close()


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
