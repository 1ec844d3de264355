"""The settings of librdkafka that the journal's promises rest on, and those that make it quick."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from packhorse.messaging.kafka.address import Address, BadKafkaUrl

logger = logging.getLogger(__name__)

BATCH_BYTES = 256 * 1024
"""Most that several records share one batch for; one larger record goes alone."""

_COMMON: Mapping[str, Any] = {
    "allow.auto.create.topics": False,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    "socket.timeout.ms": 10_000,
}

_PRODUCER: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    # No record may enter the log behind one that failed. The client's own time-out drops single
    # records and sends those behind them, so it is off and `Link` gives up on all at once.
    "message.timeout.ms": 0,
    "enable.gapless.guarantee": True,
    "linger.ms": 1,
    "batch.size": BATCH_BYTES,
    # Bodies are zstd already: compressing them again costs time and wins nothing.
    "compression.type": "none",
    "message.max.bytes": 16 * 1024 * 1024,
    "queue.buffering.max.kbytes": 256 * 1024,
}

_CONSUMER: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "check.crcs": True,
    # The log's end may be a foreign transaction's marker, which only this shows.
    "enable.partition.eof": True,
    # Nothing of ours is transactional, and nobody's open transaction may hold a reader up.
    "isolation.level": "read_uncommitted",
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 16 * 1024 * 1024,
    "receive.message.max.bytes": 64 * 1024 * 1024,
    "queued.max.messages.kbytes": 16 * 1024,
    # Its default of a second is how long a reader that has emptied its queue would wait for more.
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 100,
    # A reader belongs to no group, so nobody waits for its next poll.
    "max.poll.interval.ms": 86_400_000,
}

_LOOKUP: Mapping[str, Any] = {
    "fetch.message.max.bytes": 64 * 1024,
    "fetch.wait.max.ms": 10,
}

ANSWER_SECONDS = 5.0
"""How long a question to Kafka waits for its answer."""

OnError = Callable[[KafkaError], None]
C = TypeVar("C", AdminClient, Consumer, Producer)


def close_after_damage(consumer: Consumer, place: TopicPartition) -> None:
    """Close a consumer that met a damaged batch of the partition of `place`.

    After such a batch librdkafka (2.16.1) fetches from an offset that it read from the damaged
    bytes, and Kafka answers that this offset is out of range. Where that answer comes while the
    consumer closes, librdkafka takes one lock twice and never returns. Kafka answers the requests
    of one connection in order, so an answer to another question means that none is under way.
    """
    consumer.unassign()
    with suppress(KafkaException):
        consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS, cached=False)
    consumer.close()


class _ClientLog:
    """librdkafka's own lines: for whoever debugs; what matters reaches us as errors."""

    def log(self, _level: int, message: str, *arguments: object) -> None:
        logger.debug(message, *arguments)


class Clients:
    """Makes the clients of one journal, all with the operator's settings."""

    def __init__(self, address: Address, client_name: str) -> None:
        self._common = {**_COMMON, "bootstrap.servers": address.servers, "client.id": client_name}
        self._group = {"group.id": f"packhorse-{client_name}"}
        self._address = address

    def admin(self, on_error: OnError) -> AdminClient:
        """Return a client for questions and administration. Raises `BadKafkaUrl`."""
        return self._make(AdminClient, {}, on_error)

    def producer(self, on_error: OnError) -> Producer:
        """Return an idempotent producer that never drops a record by itself."""
        return self._make(Producer, _PRODUCER, on_error)

    def consumer(self, on_error: OnError) -> Consumer:
        """Return a consumer in no group, which stops where its offset is gone and knows the end."""
        return self._make(Consumer, {**_CONSUMER, **self._group}, on_error)

    def lookup(self, on_error: OnError) -> Consumer:
        """Return a consumer for single records: it reads little ahead."""
        return self._make(Consumer, {**_CONSUMER, **_LOOKUP, **self._group}, on_error)

    def _make(self, kind: Callable[..., C], settings: Mapping[str, Any], on_error: OnError) -> C:
        wanted = {**self._common, **settings, **self._address.settings}
        try:
            return kind({**wanted, "error_cb": on_error, "logger": _ClientLog()})
        except (KafkaException, TypeError, ValueError) as error:
            raise BadKafkaUrl(f"librdkafka refuses a setting of the Kafka URL: {error}") from error
