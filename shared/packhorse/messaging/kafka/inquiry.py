"""Questions to Kafka about a topic, and the few things it is told to do with one."""

from concurrent.futures import Future
from concurrent.futures import TimeoutError as Unanswered
from typing import Any

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, TopicDescription

from packhorse.messaging.api import Bounds, JournalUnavailable, OffsetOutOfRange
from packhorse.messaging.kafka.appending import TopicShape
from packhorse.messaging.kafka.clients import BATCH_BYTES
from packhorse.messaging.kafka.errors import KafkaRefused, topic_missing, translated

ANSWER_SECONDS = 5.0
MAX_BATCH = "max.message.bytes"


class Inquiry:
    """Asks Kafka through one admin client; every question may raise `JournalUnavailable`."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Return what the partition holds; `next` is its high watermark."""
        oldest = self._ask_offset(topic, partition, OffsetSpec.earliest())
        end = self._ask_offset(topic, partition, OffsetSpec.latest())
        return Bounds(self._offset(oldest, topic), self._offset(end, topic))

    def offset_at(self, topic: str, time_ms: int, partition: int) -> int:
        """Return the first offset not older than `time_ms`, else the next one."""
        # The end comes first: a record appended between the two answers is then not passed over.
        end = self._offset(self._ask_offset(topic, partition, OffsetSpec.latest()), topic)
        spec = OffsetSpec.for_timestamp(max(0, time_ms))
        found = self._offset(self._ask_offset(topic, partition, spec), topic)
        return end if found < 0 else found

    def truncate(self, topic: str, before: int, partition: int) -> None:
        """Remove what is below `before`. Raises `OffsetOutOfRange` beyond the end."""
        bounds = self.bounds(topic, partition)
        if before > bounds.next:
            raise OffsetOutOfRange(topic, partition, before, bounds)
        if before > bounds.oldest:
            deleted = self.client.delete_records([TopicPartition(topic, partition, before)])
            answer(_only(deleted), topic)

    def describe(self, topic: str) -> TopicDescription:
        """Return the topic's id and partitions. Raises `TopicMissing`; never creates it."""
        found: TopicDescription = answer(self.ask_description(topic), topic)
        if not found.partitions:
            raise topic_missing(topic)
        return found

    def ask_description(self, topic: str) -> "Future[TopicDescription]":
        """Ask for the description without waiting; give the future to `answer`."""
        return _only(self.client.describe_topics(TopicCollection([topic])))

    def settings(self, topic: str) -> dict[str, str]:
        """Return the topic's settings, defaults included. Raises `KafkaRefused`."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = answer(_only(self.client.describe_configs([resource])), topic)
        return {name: entry.value for name, entry in found.items()}

    def identity(self, topic: str) -> str:
        """Return the cluster's and the topic's id: a topic created anew has another one."""
        cluster = answer(self.client.describe_cluster(), topic)
        return f"{cluster.cluster_id}/{self.describe(topic).topic_id}"

    def brokers(self) -> int:
        """Return how many brokers the cluster has now."""
        return len(answer(self.client.describe_cluster(), "the cluster").nodes)

    def shape(self, topic: str) -> TopicShape:
        """Return what an append has to know of the topic."""
        partitions = len(self.describe(topic).partitions)
        try:
            return TopicShape(partitions, int(self.settings(topic)[MAX_BATCH]) - BATCH_BYTES)
        except KafkaRefused:  # the right to see the settings is not needed to append
            return TopicShape(partitions, None)

    def _ask_offset(self, topic: str, partition: int, spec: OffsetSpec) -> "Future[Any]":
        return _only(self.client.list_offsets({TopicPartition(topic, partition): spec}))

    def _offset(self, future: "Future[Any]", topic: str) -> int:
        try:
            return int(answer(future, topic).offset)
        except JournalUnavailable:
            self.describe(topic)  # a topic that is missing is reported as one without leaders
            raise


def answer(future: "Future[Any]", topic: str) -> Any:
    """Wait for Kafka's answer. Raises what its refusal means for `topic`."""
    try:
        return future.result(ANSWER_SECONDS)
    except KafkaException as error:
        raise translated(error, topic) from error
    except Unanswered as error:
        raise JournalUnavailable(f"Kafka did not answer about {topic}; try again") from error


def _only(futures: "dict[Any, Future[Any]]") -> "Future[Any]":
    (future,) = futures.values()
    return future
