"""Questions to Kafka about a topic, and the few things it is told to do with one."""

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Unanswered
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, TopicDescription

from packhorse.messaging.api import Bounds, JournalUnavailable, OffsetOutOfRange
from packhorse.messaging.kafka.appending import TopicShape
from packhorse.messaging.kafka.clients import BATCH_BYTES, Clients
from packhorse.messaging.kafka.errors import (
    KafkaRefused,
    leads_elsewhere,
    topic_missing,
    translated,
)

ANSWER_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05
MAX_BATCH = "max.message.bytes"


class Inquiry:
    """Asks Kafka through one admin client; every question may raise `JournalUnavailable`."""

    def __init__(self, clients: Clients) -> None:
        self._complaint = ""
        self.client: AdminClient = clients.admin(self._on_error)

    def answer(self, future: "Future[Any]", topic: str) -> Any:
        """Wait for Kafka's answer. Raises what its refusal means for `topic`."""
        try:
            found = future.result(ANSWER_SECONDS)
        except KafkaException as error:
            raise translated(error, topic, self._complaints()) from error
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
        oldest = self._offset(topic, partition, OffsetSpec.earliest())
        return Bounds(oldest, self._offset(topic, partition, OffsetSpec.latest()))

    def offset_at(self, topic: str, time_ms: int, partition: int) -> int:
        """Return the first offset not older than `time_ms`, else the next one."""
        # The end comes first: a record appended between the two answers is then not passed over.
        end = self._offset(topic, partition, OffsetSpec.latest())
        found = self._offset(topic, partition, OffsetSpec.for_timestamp(max(0, time_ms)))
        return end if found < 0 else found

    def truncate(self, topic: str, before: int, partition: int) -> None:
        """Remove what is below `before`. Raises `OffsetOutOfRange` beyond the end."""
        bounds = self.bounds(topic, partition)
        if before > bounds.next:
            raise OffsetOutOfRange(topic, partition, before, bounds)
        if before > bounds.oldest:
            deleted = self.client.delete_records([TopicPartition(topic, partition, before)])
            self.answer(_only(deleted), topic)

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
        cluster = self.answer(self.client.describe_cluster(), topic)
        return f"{cluster.cluster_id}/{self.describe(topic).topic_id}"

    def brokers(self) -> int:
        """Return how many brokers the cluster has now."""
        return len(self.answer(self.client.describe_cluster(), "the cluster").nodes)

    def shape(self, topic: str) -> TopicShape:
        """Return what an append has to know of the topic."""
        partitions = len(self.describe(topic).partitions)
        try:
            return TopicShape(partitions, int(self.settings(topic)[MAX_BATCH]) - BATCH_BYTES)
        except KafkaRefused:  # the right to see the settings is not needed to append
            return TopicShape(partitions, None)

    def _offset(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            asked = self.client.list_offsets({TopicPartition(topic, partition): spec})
            try:
                return int(self.answer(_only(asked), topic).offset)
            except JournalUnavailable as error:
                if not leads_elsewhere(error.__cause__) or time.monotonic() > deadline:
                    raise
            self.describe(topic)  # a topic that is missing is reported as one without leaders
            time.sleep(_LOOK_AGAIN_SECONDS)  # the client is finding out who leads

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
