"""Questions to Kafka about a topic, and the few things that it is asked to do with one.

Services ask all the time, so a stalled broker meets a question of theirs. They ask as a consumer
does; of the admin client's requests they use the one that nothing else replaces, for the topic's
id, and those that an operator asks for: settings, retention, removal. `describe_cluster` is never
sent: librdkafka 2.16 ends the whole process when the answer names no broker, as that of a broker
that goes on after a stall may (ADR 0050).
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Unanswered
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    TopicDescription,
)

from packhorse.messaging.api import Bounds, JournalUnavailable, OffsetOutOfRange, topic_missing
from packhorse.messaging.kafka.appending import TopicShape
from packhorse.messaging.kafka.clients import ANSWER_SECONDS, BATCH_BYTES, Clients
from packhorse.messaging.kafka.errors import (
    KafkaRefused,
    is_missing,
    leads_elsewhere,
    translated,
)

_LOOK_AGAIN_SECONDS = 0.05
MAX_BATCH = "max.message.bytes"
RETENTION = "retention.ms"

T = TypeVar("T")


class Inquiry:
    """Asks Kafka through one client of each kind; every question may raise `JournalUnavailable`."""

    def __init__(self, clients: Clients) -> None:
        self._complaint = ""
        self.client: AdminClient = clients.admin(self._on_error)
        self._clients = clients
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def answer(self, future: "Future[Any]", topic: str, operation: str = "Read") -> Any:
        """Wait for Kafka's answer. Raises what its refusal means for `topic`.

        `operation` is the right that was needed, by the name that ACLs have for it.
        """
        try:
            found = future.result(ANSWER_SECONDS)
        except KafkaException as error:
            raise translated(error, topic, self._complaints(), operation) from error
        except Unanswered as error:
            raise JournalUnavailable(
                f"Kafka did not answer about {topic} within {ANSWER_SECONDS:g} s"
                f"{self._complaints()}; try again"
            ) from error
        self._complaints()
        self._complaint = ""
        return found

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Return what the partition holds; `next` is its high watermark."""
        place = TopicPartition(topic, partition)
        found = self._as_consumer(topic, lambda consumer: _watermarks(consumer, place))
        return Bounds(*found)

    def offset_at(self, topic: str, time_ms: int, partition: int) -> int:
        """Return the first offset not older than `time_ms`, else the next one."""
        # The end comes first: a record appended between the two answers is then not passed over.
        end = self.bounds(topic, partition).next
        place = TopicPartition(topic, partition, max(0, time_ms))
        found = self._as_consumer(topic, lambda consumer: _first_since(consumer, place))
        return end if found < 0 else found

    def truncate(self, topic: str, before: int, partition: int) -> None:
        """Remove what is below `before`. Raises `OffsetOutOfRange` beyond the end."""
        bounds = self.bounds(topic, partition)
        if before > bounds.next:
            raise OffsetOutOfRange(topic, partition, before, bounds)
        if before > bounds.oldest:
            deleted = self.client.delete_records([TopicPartition(topic, partition, before)])
            self.answer(_only(deleted), topic, "Delete")

    def retain(self, topic: str, retention_ms: int) -> None:
        """Set the topic's retention, and nothing else. Raises `TopicMissing`, `KafkaRefused`."""
        change = ConfigEntry(
            RETENTION, str(retention_ms), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
        changed = self.client.incremental_alter_configs([resource])
        self.answer(_only(changed), topic, "AlterConfigs")

    def describe(self, topic: str) -> TopicDescription:
        """Return the topic's id and partitions. Raises `TopicMissing`; never creates it."""
        answered = _only(self.client.describe_topics(TopicCollection([topic])))
        found: TopicDescription = self.answer(answered, topic)
        if not found.partitions:
            raise topic_missing(topic)
        return found

    def settings(self, topic: str) -> dict[str, str]:
        """Return the topic's settings, defaults included. Raises `KafkaRefused`."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self.answer(_only(self.client.describe_configs([resource])), topic)
        return {name: entry.value for name, entry in found.items()}

    def identity(self, topic: str) -> str:
        """Return the cluster's and the topic's id: a topic created anew has another one."""
        cluster = self._as_consumer(topic, lambda one: one.list_topics(topic, ANSWER_SECONDS))
        return f"{cluster.cluster_id}/{self.describe(topic).topic_id}"

    def brokers(self) -> int:
        """Return how many brokers the cluster has now; for a moment after a stall it names none."""
        everything = "the cluster"
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            found = self._as_consumer(
                everything, lambda one: one.list_topics(timeout=ANSWER_SECONDS)
            )
            if found.brokers:
                return len(found.brokers)
            if time.monotonic() > deadline:
                raise JournalUnavailable("Kafka names no broker that is ready; try again")
            time.sleep(_LOOK_AGAIN_SECONDS)

    def close(self) -> None:
        """Close the consumer's connections."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def shape(self, topic: str) -> TopicShape:
        """Return what an append has to know of the topic."""
        partitions = len(self.describe(topic).partitions)
        try:
            return TopicShape(partitions, int(self.settings(topic)[MAX_BATCH]) - BATCH_BYTES)
        except KafkaRefused:  # the right to see the settings is not needed to append
            return TopicShape(partitions, None)

    def _as_consumer(self, topic: str, ask: Callable[[Consumer], T | None]) -> T:
        """Ask through the consumer, again while the client is finding out who leads."""
        with self._lock:
            self._consumer = self._consumer or self._clients.lookup(self._on_error)
            consumer = self._consumer
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                found = ask(consumer)
            except KafkaException as error:
                consumer.poll(0)  # serves the complaints
                # A consumer also says of a broker that is away that it knows no such partition.
                unsure = leads_elsewhere(error) or is_missing(error.args[0])
                if not unsure or time.monotonic() > deadline:
                    raise translated(error, topic, self._complaints()) from error
            else:
                if found is not None:
                    self._complaint = ""
                    return found
                raise JournalUnavailable(
                    f"Kafka did not answer about {topic} within {ANSWER_SECONDS:g} s; try again"
                )
            self.describe(topic)  # says which of them it is
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _complaints(self) -> str:
        """Return why librdkafka can't connect; the answers only say that they did not come."""
        self.client.poll(0)
        return self._complaint

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._complaint = f" ({error.str()})"


def _only(futures: "dict[Any, Future[Any]]") -> "Future[Any]":
    (future,) = futures.values()
    return future


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int] | None:
    return consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS, cached=False)


def _first_since(consumer: Consumer, place: TopicPartition) -> int:
    """Return the first offset that is not older than the time in `place.offset`, or less than 0."""
    (found,) = consumer.offsets_for_times([place], timeout=ANSWER_SECONDS)
    if found.error is not None:
        raise KafkaException(found.error)
    return int(found.offset)
