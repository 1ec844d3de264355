"""Appending to one topic partition with producer names and sequences: each message once.

    log = DeduplicatedLog(journal, topic, snapshots, name="events/author")
    epoch = ...                               # from the source of epochs, once a start
    log.append(Numbered("events/author", epoch, 17, Outgoing(body)))
    log.last_sequence("events/author")        # 17: go on after it
    log.take_snapshot()                       # every now and then

Every record carries the headers `producer-name`, `producer-epoch` and `producer-sequence`, so the
log itself says what is in it. What was known is restored from the last snapshot and the headers
of the records after it. The rules of sequences and epochs are in `deduplication`.

Who may append: each producer's name has one owner at a time, held by a lock or a lease. An owner
that was replaced without knowing is fenced as soon as a record of the newer epoch is in the log:
the log's growth is looked at before every batch. Others may append to the partition as they like.
"""

import concurrent.futures
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from packhorse.errors import PackhorseError, Permanent, Transient
from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    Journal,
    JournalUnavailable,
    NotAppended,
    RecordTooLarge,
)
from packhorse.messaging.deduplication import DeduplicationVerdict, SnapshotStore
from packhorse.messaging.known_log import DEFAULT_LIMITS, KnownLog, KnownPartition, MemoryLimits
from packhorse.messaging.numbered import Numbered

logger = logging.getLogger(__name__)

_FUTURE_S = 300.0
"""Far beyond any backend's own limit: a future that is not done by then never will be."""


class DuplicateUnknown(Transient):
    """It is not known yet whether the message is in the log; ask again when the journal is back."""


class SequenceOvertaken(Permanent):
    """The message is not in the log, and a later one of its producer is; give it a new number."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The message is in the log."""

    offset: int | None
    """Where; None for a duplicate, which only counts as being there."""

    @property
    def duplicate(self) -> bool:
        """Whether it was there before."""
        return self.offset is None


Outcome = Answer | PackhorseError
"""What became of one message of a batch."""


class DeduplicatedLog:
    """Appends to the partition of `key`; nothing is read or written before the first call.

    Calls of several threads take turns, and each waits for the journal: put what there is into
    one `append_all`. `name` is whose snapshots these are; no two owners share one.
    """

    def __init__(
        self,
        journal: Journal,
        topic: str,
        snapshots: SnapshotStore,
        *,
        name: str,
        key: str | None = None,
        limits: MemoryLimits = DEFAULT_LIMITS,
    ) -> None:
        self._journal, self._topic, self._key = journal, topic, key
        self._lock = threading.Lock()
        self._log = KnownLog(journal, KnownPartition(topic, key, name), snapshots, limits)

    def append(self, message: Numbered) -> Answer:
        """Append one message; see `append_all`. Raises what became of it instead of an answer."""
        (outcome,) = self.append_all([message])
        if isinstance(outcome, Answer):
            return outcome
        raise outcome

    def append_all(self, messages: Sequence[Numbered]) -> list[Outcome]:
        """Append those messages that are not in the log yet, and say what became of each.

        A producer's message at fault, or a duplicate, costs the others nothing. What the journal
        won't take holds up those behind it that were not appended before that was known: once a
        later one is in the log, it never can be. The errors are:

        - `DuplicateUnknown`: it was appended and not confirmed; try again later.
        - `NotAppended`: it is certainly not in the log; try again later, in the same order.
        - `ProducerFenced`, `ProducerExpired`, `TooManyActiveProducers`: see `deduplication`.
        - `RecordTooLarge`, `TopicMissing`: the journal won't take it.
        - `SequenceOvertaken`: it failed, but a later one of the batch did not.

        Raises a `Transient` when the journal or the snapshot can't be read at the first call, and
        `TopicMissing`.
        """
        with self._lock:
            self._log.recover()
            try:
                self._log.catch_up()
            except JournalUnavailable as error:
                return [self._judge(message, error) for message in messages]
            return self._append_all(messages)

    def last_sequence(self, producer: str) -> int | None:
        """Return the producer's highest sequence in the log, read to its end; None for none.

        Raises a `Transient` when the journal or the snapshot can't be read.
        """
        with self._lock:
            self._log.recover()
            self._log.catch_up()
            return self._log.state.last_sequence(producer)

    @property
    def unsaved(self) -> int:
        """How many records a restart would have to replay, as far as is known without asking."""
        return self._log.unsaved

    def take_snapshot(self) -> None:
        """Forget idle producers, and save what is known up to the log's present end.

        To be called now and then, by time or by `unsaved`: a restart replays what came since.
        Raises a `Transient` when the journal or the store is away; nothing is lost then.
        """
        with self._lock:
            self._log.recover()
            self._log.save()

    def _judge(self, message: Numbered, why: object) -> Outcome:
        """Say what can be said of a message that is not appended now."""
        try:
            verdict = self._log.state.verdict(message.producer, message.sequence, message.epoch)
        except PackhorseError as refusal:
            return refusal
        if verdict is DeduplicationVerdict.DUP:
            return Answer(None)
        if verdict is DeduplicationVerdict.UNKNOWN:
            return DuplicateUnknown(f"whether it is in the log can't be known now: {why}")
        return NotAppended(f"nothing was appended: {why}")

    def _append_all(self, messages: Sequence[Numbered]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        sent: dict[int, Future[Appended]] = {}
        pending: deque[Future[Appended]] = deque()
        for index, message in enumerate(messages):
            if _is_broken(pending):
                break
            try:
                verdict = self._log.state.check(message.producer, message.sequence, message.epoch)
            except PackhorseError as refusal:
                outcomes[index] = refusal
                continue
            if verdict is DeduplicationVerdict.NOT_DUP:
                self._log.doubted.add(message.producer)
                sent[index] = self._journal.append(self._topic, message.outgoing(self._key))
                pending.append(sent[index])
        concurrent.futures.wait(sent.values(), timeout=_FUTURE_S)
        outcomes |= self._take_in(messages, sent)
        why = "the journal did not take what came before it"
        return [
            outcomes[index] if index in outcomes else self._judge(message, why)
            for index, message in enumerate(messages)
        ]

    def _take_in(
        self, messages: Sequence[Numbered], sent: Mapping[int, Future[Appended]]
    ) -> dict[int, Outcome]:
        """Note what became of the messages that were sent; look for those that nobody knows of."""
        outcomes: dict[int, Outcome] = {}
        for index, future in sent.items():
            outcome = outcomes[index] = _outcome(future)
            if isinstance(outcome, Answer) and outcome.offset is not None:
                self._log.note(messages[index].number, outcome.offset)
        unknown = [index for index in sent if isinstance(outcomes[index], AppendUnknown)]
        outcomes |= self._look_for(messages, unknown)
        doubted = {
            messages[index].producer
            for index, outcome in outcomes.items()
            if isinstance(outcome, DuplicateUnknown)
        }
        for producer in {messages[index].producer for index in sent} - doubted:
            self._log.state.reset(producer)
            self._log.doubted.discard(producer)
        return {
            index: self._overtaken(messages[index], outcome) for index, outcome in outcomes.items()
        }

    def _look_for(self, messages: Sequence[Numbered], unknown: Sequence[int]) -> dict[int, Outcome]:
        if not unknown:
            return {}
        try:
            found = self._log.catch_up()
        except PackhorseError as error:
            return {
                index: DuplicateUnknown(f"not confirmed, and the log can't be read: {error}")
                for index in unknown
            }
        offsets = {index: found.get(messages[index].number) for index in unknown}
        lost = NotAppended("the journal did not take it; append it again")
        return {
            index: lost if offset is None else Answer(offset) for index, offset in offsets.items()
        }

    def _overtaken(self, message: Numbered, outcome: Outcome) -> Outcome:
        """Don't promise another try to a message whose number has passed."""
        last = self._log.state.last_sequence(message.producer)
        is_out = isinstance(outcome, NotAppended | RecordTooLarge)
        if not is_out or last is None or last < message.sequence:
            return outcome
        logger.error("a message was overtaken", extra={"producer": message.producer})
        return SequenceOvertaken(
            f"sequence {message.sequence} of producer {message.producer} is not in the log, and "
            f"{last} is; append the message again under a new sequence"
        )


def _is_broken(pending: deque[Future[Appended]]) -> bool:
    """Whether one of the appends so far is known to have failed, itself not being at fault.

    The journal takes nothing behind it that was appended before it could be seen to fail; nor do
    we append anything afterwards, so that sequences enter the log in order.
    """
    if pending and _has_failed(pending[-1]):  # refused at once, while others are under way
        return True
    while pending and pending[0].done():
        if _has_failed(pending.popleft()):
            return True
    return False


def _has_failed(future: Future[Appended]) -> bool:
    return future.done() and future.exception() is not None


def _outcome(future: Future[Appended]) -> Outcome:
    if not future.done():
        return AppendUnknown("the journal never answered")
    error = future.exception()
    if error is None:
        return Answer(future.result().offset)
    if isinstance(error, PackhorseError):
        return error
    return AppendUnknown(f"the append failed in an unknown way: {error}")
