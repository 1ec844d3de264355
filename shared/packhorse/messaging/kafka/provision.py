"""Creates topics as the journal needs them, and says what is wrong with those that exist."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic, TopicDescription

from packhorse.errors import Transient
from packhorse.messaging.api import JournalUnavailable, TopicMissing, TopicSpec
from packhorse.messaging.faults import topic_faults
from packhorse.messaging.kafka.clients import ANSWER_SECONDS, BATCH_BYTES
from packhorse.messaging.kafka.inquiry import MAX_BATCH, RETENTION, Inquiry

_FULL_REPLICATION = 3
_LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Need:
    """A setting of a topic: its value at creation, the least that will do, and why."""

    name: str
    value: str
    why: str
    at_least: bool = False

    def is_met(self, found: str | None) -> bool:
        if found == self.value or not self.at_least:
            return found == self.value
        number = int(found or 0)
        return number == -1 or number >= int(self.value) >= 0


def _needs(spec: TopicSpec, replicas: int) -> Iterator[_Need]:
    yield _Need(
        RETENTION,
        str(spec.retention_ms),
        "it keeps too little for a subscriber that was away",
        True,
    )
    yield _Need("retention.bytes", "-1", "records vanish before their time")
    yield _Need("cleanup.policy", "delete", "records vanish from the middle of the log")
    # Several records share a batch of up to BATCH_BYTES, which is also room enough for the key
    # and the headers of one record alone.
    largest = str(spec.max_record_bytes + BATCH_BYTES)
    yield _Need(MAX_BATCH, largest, "records within packhorse's limit are refused", True)
    yield _Need(
        "message.timestamp.type", "LogAppendTime", "a publisher's clock decides what is old"
    )
    yield _Need("unclean.leader.election.enable", "false", "acknowledged records get lost")
    if replicas >= _FULL_REPLICATION:
        yield _Need("min.insync.replicas", "2", "a record on one broker alone counts as safe", True)


class Provision:
    """Topics as packhorse needs them."""

    def __init__(self, inquiry: Inquiry) -> None:
        self._inquiry = inquiry

    def create(self, topics: Sequence[TopicSpec]) -> None:
        """Create those that do not exist, with three replicas where there are three brokers."""
        replicas = min(self._inquiry.brokers(), _FULL_REPLICATION)
        wanted = [_new_topic(spec, replicas) for spec in topics]
        if not wanted:
            return
        for topic, future in self._inquiry.client.create_topics(wanted).items():
            try:
                self._inquiry.answer(future, topic)
            except JournalUnavailable as error:
                if not _exists_already(error.__cause__):
                    raise
        for spec in topics:
            self._wait_for_leaders(spec.name)

    def check(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Return one sentence for each thing that is wrong, with the command that mends it."""
        return [fault for spec in topics for fault in self._faults(spec)]

    def _wait_for_leaders(self, topic: str) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._has_leaders(topic):
            if time.monotonic() > deadline:
                raise JournalUnavailable(f"topic {topic} has no leader yet; try again")
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _has_leaders(self, topic: str) -> bool:
        try:
            partitions = self._inquiry.describe(topic).partitions
            for partition in partitions:
                self._inquiry.bounds(topic, partition.id)
        except (TopicMissing, Transient):
            return False
        return True

    def _faults(self, spec: TopicSpec) -> list[str]:
        try:
            found = self._inquiry.describe(spec.name)
            settings = self._inquiry.settings(spec.name)
        except TopicMissing:
            return topic_faults([spec], {})
        partitions = dataclasses.replace(spec, partitions=len(found.partitions))
        return topic_faults([spec], {spec.name: partitions}) + [
            _sentence(spec.name, need, settings.get(need.name))
            for need in _needs(spec, _replicas(found))
            if not need.is_met(settings.get(need.name))
        ]


def _new_topic(spec: TopicSpec, replicas: int) -> NewTopic:
    config = {need.name: need.value for need in _needs(spec, replicas)}
    return NewTopic(spec.name, spec.partitions, replicas, config=config)


def _exists_already(cause: BaseException | None) -> bool:
    code = cause.args[0].code() if isinstance(cause, KafkaException) else None
    return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)


def _replicas(topic: TopicDescription) -> int:
    return min(len(partition.replicas) for partition in topic.partitions)


def _sentence(topic: str, need: _Need, found: str | None) -> str:
    bound = "at least " if need.at_least and need.value != "-1" else ""
    return (
        f"topic {topic} has {need.name}={found} and must have {bound}{need.value}, or {need.why}; "
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
        f"--add-config {need.name}={need.value}"
    )
