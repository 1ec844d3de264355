"""Readers: cursors over partitions of one topic, assigned by hand and never in a group."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from operator import itemgetter
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from packhorse.messaging.api import (
    JournalUnavailable,
    LogEnd,
    OffsetOutOfRange,
    Position,
    Reader,
    Record,
    Since,
    TopicMissing,
    damaged,
)
from packhorse.messaging.kafka.clients import Clients, close_after_damage
from packhorse.messaging.kafka.errors import is_damage, translated
from packhorse.messaging.kafka.inquiry import Inquiry
from packhorse.messaging.kafka.records import as_record

logger = logging.getLogger(__name__)

_CHUNK = 100
_MIXED = 1000
"""How many records of several partitions are fetched before they take turns."""
_JOIN_SECONDS = 0.01
_PROBE_SECONDS = 1.0
_CONFIRM_SECONDS = 1.0
_STEP_SECONDS = 0.25
"""For so long a poll waits at a time: it may have been woken, or Kafka be away."""


class KafkaReader(Reader):
    """A `Reader` whose own positions count: librdkafka is set back to them after any error."""

    def __init__(self, clients: Clients, inquiry: Inquiry, topic: str, *, values: bool) -> None:
        self._clients, self._inquiry = clients, inquiry
        self._topic, self._values = topic, values
        self._topic_id = str(inquiry.describe(topic).topic_id)
        self._confirmed_at = time.monotonic()
        self._unconfirmed = False
        """Whether records were given out since the topic was confirmed."""
        self._consumer = clients.consumer(self._on_error)
        self._next: dict[int, int] = {}  # the offset behind what is in hand, by partition
        self._from_oldest: set[int] = set()
        self._in_hand: deque[Record] = deque()
        self._trouble: tuple[KafkaError, int | None] | None = None
        self._assigned = False
        self._damage: tuple[int, int] | None = None
        """Partition and offset of a record that could not be read once."""
        self._away: KafkaError | None = None
        self._woken = threading.Event()

    def poll(
        self, timeout: float, *, max_records: int = 500, max_bytes: int = 8 * 1024 * 1024
    ) -> Sequence[Record]:
        """Return the next records; what was fetched beyond the limits waits for the next poll."""
        deadline = time.monotonic() + timeout
        while True:
            before, left = dict(self._next), max(0.0, deadline - time.monotonic())
            records = self._step(min(left, _STEP_SECONDS), max_records, max_bytes)
            if records or self._next != before or left <= _STEP_SECONDS or self._woken.is_set():
                self._woken.clear()
                return records

    def wake(self) -> None:
        """Let a poll return soon: librdkafka can't be woken, so it waits in steps."""
        self._woken.set()

    def _step(self, timeout: float, max_records: int, max_bytes: int) -> Sequence[Record]:
        if not self._in_hand:
            self._fetch(timeout, max_records, max_bytes)
        elif self._others_may_join(max_bytes):
            self._fetch(_JOIN_SECONDS, max_records, max_bytes)
        if self._in_hand or self._unconfirmed:
            self._confirm_now_and_then()
        taken = self._take(max_records, max_bytes)
        self._unconfirmed = self._unconfirmed or bool(taken)
        return taken

    def seek(self, position: Position, partition: int = 0) -> None:
        """Continue at `position`; an offset that is gone is reported at the next poll."""
        self._next[partition] = self._resolve(position, partition)
        self._from_oldest.discard(partition)
        if position is LogEnd.OLDEST:
            self._from_oldest.add(partition)
        self._in_hand = deque(record for record in self._in_hand if record.partition != partition)
        if self._assigned:
            # A new connection takes milliseconds. The old one may be waiting at the log's end,
            # and would see the new position only when that wait of half a second is over.
            self.close()
            self._consumer = self._clients.consumer(self._on_error)
        self._trouble, self._assigned = None, False

    def position(self, partition: int = 0) -> int:
        """Return the offset of the next record, or what librdkafka named as the log's end."""
        in_hand = (record.offset for record in self._in_hand if record.partition == partition)
        return next(in_hand, self._next[partition])

    def close(self) -> None:
        """Close the connections to Kafka."""
        place, self._damage = self._damage, None
        if place is None:
            self._consumer.close()
        else:
            close_after_damage(self._consumer, TopicPartition(self._topic, place[0]))

    def _resolve(self, position: Position, partition: int) -> int:
        match position:
            case LogEnd.OLDEST:
                return self._inquiry.bounds(self._topic, partition).oldest
            case LogEnd.NEXT:
                return self._inquiry.bounds(self._topic, partition).next
            case Since(time_ms):
                return self._inquiry.offset_at(self._topic, time_ms, partition)
            case int():
                return position

    def _fetch(self, timeout: float, max_records: int, max_bytes: int) -> None:
        if self._trouble is not None and not self._in_hand:
            self._face(*self._trouble)
        if not self._assigned:
            places = (TopicPartition(self._topic, *place) for place in self._next.items())
            self._consumer.assign(list(places))
        self._assigned = False  # an error leaves messages behind, which are to be fetched again
        first = self._first(timeout)
        if first is not None:
            self._drain(first, max_records, max_bytes)
        self._assigned = True
        if first is None and not self._in_hand:
            self._check_that_kafka_is_there(timeout)
        if self._trouble is not None and not self._in_hand:
            self._face(*self._trouble)

    def _first(self, timeout: float) -> Message | None:
        """Wait for a message that says more than where the log ends."""
        deadline = time.monotonic() + timeout
        while True:
            message = self._consumer.poll(max(0.0, deadline - time.monotonic()))
            if message is None or not _is_end(message.error()):
                return message
            self._accept(message)

    def _drain(self, first: Message, max_records: int, max_bytes: int) -> None:
        """Take `first` and what librdkafka has fetched already, about up to the limits."""
        self._accept(first)
        size = len(first)
        if len(self._next) > 1:
            max_records = max(max_records, _MIXED)
        # A consumer waits until it has all that it was asked for, so it is asked without waiting.
        while self._trouble is None and len(self._in_hand) < max_records and size < max_bytes:
            more = self._consumer.consume(min(_CHUNK, max_records), 0)
            if not more:
                break
            for message in more:
                self._accept(message)
                size += len(message)
        if len(self._next) > 1:
            self._mix()

    def _others_may_join(self, max_bytes: int) -> bool:
        """Return whether partitions that are not in hand should get a chance before the rest is."""
        if len(self._next) == 1:
            return False
        present = {record.partition for record in self._in_hand}
        size = sum(len(record.value) for record in self._in_hand)
        return len(present) < len(self._next) and len(self._in_hand) < _MIXED and size < max_bytes

    def _mix(self) -> None:
        """Let the partitions take turns; Kafka delivers one after the other."""
        turns: Counter[int] = Counter()
        by_turn: list[tuple[int, Record]] = []
        for record in self._in_hand:
            turns[record.partition] += 1
            by_turn.append((turns[record.partition], record))
        self._in_hand = deque(record for _, record in sorted(by_turn, key=itemgetter(0)))

    def _accept(self, message: Message) -> None:
        """Take a message in hand; after the first error nothing counts until it is faced."""
        error = message.error()
        if self._trouble is not None:
            return
        if error:
            self._accept_error(error, message)
            return
        record = as_record(message, values=self._values)
        if record.offset >= self._next[record.partition]:  # whatever a client in trouble repeats
            self._next[record.partition] = record.offset + 1
            self._in_hand.append(record)

    def _accept_error(self, error: KafkaError, message: Message) -> None:
        """Note trouble. The log's end is none, and so is a missing right to a group of readers."""
        if _is_end(error):
            self._pass_over(cast(int, message.partition()), cast(int, message.offset()))
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._trouble = error, message.partition()

    def _pass_over(self, partition: int, end: int) -> None:
        """Pass offsets at the log's end that hold no record of anybody."""
        if end > self._next[partition]:
            self._confirm_topic()
            self._next[partition] = end

    def _face(self, error: KafkaError, partition: int | None) -> None:
        """Raise what the error means; reading goes on behind the last record that was taken."""
        self._trouble, self._assigned = None, False
        if is_damage(error) and partition is not None:
            self._face_damage(error, partition)
            return
        if error.code() != KafkaError._AUTO_OFFSET_RESET or partition not in self._next:
            raise translated(error, self._topic)
        self._confirm_topic()
        bounds, wanted = self._inquiry.bounds(self._topic, partition), self._next[partition]
        if partition in self._from_oldest:
            self._next[partition] = bounds.oldest  # the oldest moved up on our way to it
        elif not bounds.oldest <= wanted <= bounds.next:
            raise OffsetOutOfRange(self._topic, partition, wanted, bounds)

    def _face_damage(self, error: KafkaError, partition: int) -> None:
        """Read once more, for the network may have done it; then give what stands for the record.

        A damaged batch may hold several: the next poll begins with the next offset, and meets the
        same batch again.
        """
        place = partition, self._next[partition]
        if self._damage != place:
            self._damage = place
            return
        self._in_hand.append(damaged(self._topic, *place, error.str()))
        self._next[partition] += 1

    def _take(self, max_records: int, max_bytes: int) -> list[Record]:
        taken: list[Record] = []
        while self._in_hand and len(taken) < max_records:
            max_bytes -= len(self._in_hand[0].value)
            if max_bytes < 0 and taken:
                break
            taken.append(self._in_hand.popleft())
        if self._from_oldest:
            self._from_oldest.difference_update(record.partition for record in taken)
        return taken

    def _confirm_now_and_then(self) -> None:
        if time.monotonic() > self._confirmed_at + _CONFIRM_SECONDS:
            self._confirm_topic()

    def _confirm_topic(self) -> None:
        """Make sure that the topic is still the one that the positions belong to (R24).

        librdkafka reads on in a topic that was created anew, at the old one's offset. Asking
        after the fetch proves that the records in hand are the old one's.
        """
        if str(self._inquiry.describe(self._topic).topic_id) != self._topic_id:
            raise TopicMissing(
                f"topic {self._topic} was created anew; check the journal's identity and open "
                "a new reader"
            )
        self._confirmed_at, self._unconfirmed = time.monotonic(), False

    def _on_error(self, error: KafkaError) -> None:
        if self._away is None:
            logger.debug("Kafka reports an error", extra={"reason": error.str()})
        self._away = error

    def _check_that_kafka_is_there(self, timeout: float) -> None:
        """Ask Kafka when librdkafka has complained since it last answered."""
        if self._away is None:
            return
        try:
            self._consumer.list_topics(self._topic, timeout=min(_PROBE_SECONDS, timeout + 0.1))
        except KafkaException as error:
            raise JournalUnavailable(
                f"Kafka can't be reached ({self._away.str()}); poll again"
            ) from error
        self._away = None


def _is_end(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError._PARTITION_EOF
