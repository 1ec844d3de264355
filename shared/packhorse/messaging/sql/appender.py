"""The appender: one thread a journal, which puts all threads' waiting records into one group.

What holds after a failure: a group is appended whole or not at all, and when one fails, what
waits behind it fails as `NotAppended` too. So no record overtakes one that was appended before
it and failed, unless its caller appended it after the failure could be seen.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from packhorse.errors import PackhorseError
from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    NotAppended,
    Outgoing,
    RecordTooLarge,
    TopicMissing,
    partition_for,
    topic_missing,
)
from packhorse.messaging.sql.catalogue import SqlTopic
from packhorse.messaging.sql.group import GroupWriter, Slice
from packhorse.messaging.sql.waiting import Waiting, WaitingQueue

logger = logging.getLogger(__name__)


class SqlAppender:
    """Takes records from any thread; readers hear of them after the commit."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._queue = WaitingQueue()
        self._group: Sequence[Waiting] = ()
        self._topics: dict[str, SqlTopic] = {}
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def submit(self, topic: str, record: Outgoing) -> Future[Appended]:
        """Queue a record and return at once."""
        waiting = Waiting.of(topic, record)
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="journal-appender", daemon=True)
                thread.start()
                self._thread = thread  # one that can't be started is tried again
        self._queue.put(waiting)
        return waiting.future

    def close(self, timeout: float) -> None:
        """Append what waits for at most `timeout` seconds; the rest fails with `AppendUnknown`."""
        self._queue.close()
        if self._thread is None:
            return
        self._thread.join(timeout)
        for waiting in (*self._group, *self._queue.take_all()):
            waiting.fail(AppendUnknown("the journal was closed first; look into the log"))

    def _run(self) -> None:
        while (group := self._queue.take_group()) is not None:
            self._group = group
            try:
                self._append(group)
            except PackhorseError as error:
                self._give_up(group, error)
            except Exception:
                logger.exception("the appender met an error that it does not know")
                self._give_up(group, AppendUnknown("the appender failed; its log says how"))

    def _append(self, group: Sequence[Waiting]) -> None:
        """Write a group; when a topic was created anew meanwhile, look it up and write again."""
        try:
            self._write(group)
        except TopicMissing:
            self._topics.clear()
            self._write([waiting for waiting in group if not waiting.future.done()])

    def _write(self, group: Sequence[Waiting]) -> None:
        slices = self._divide(group)
        if not slices:
            return
        self._writer.write(slices)
        for part in slices:
            for offset, waiting in enumerate(part.records, part.first):
                waiting.succeed(Appended(part.number, offset))

    def _divide(self, group: Sequence[Waiting]) -> Sequence[Slice]:
        """Sort records by partition; those that their topic does not take fail alone."""
        unknown = {waiting.topic for waiting in group} - self._topics.keys()
        if unknown:
            self._topics.update(self._writer.topics(sorted(unknown)))
        slices: dict[tuple[int, int], Slice] = {}
        refused: set[str] = set()
        for waiting in group:
            try:
                topic = self._accepting(waiting)
            except (TopicMissing, RecordTooLarge) as refusal:
                waiting.fail(refusal)
                refused.add(waiting.topic)
                continue
            number = partition_for(waiting.key, topic.spec.partitions)
            fresh = Slice(topic.id, number, topic.partition_ids[number])
            slices.setdefault((topic.id, number), fresh).records.append(waiting)
        for name in refused:  # the next group asks whether the limit was raised meanwhile
            self._topics.pop(name, None)
        return list(slices.values())

    def _accepting(self, waiting: Waiting) -> SqlTopic:
        topic = self._topics.get(waiting.topic)
        if topic is None:
            raise topic_missing(waiting.topic)
        limit = topic.spec.max_record_bytes
        if max(len(waiting.body), waiting.size - len(waiting.body)) > limit:
            raise RecordTooLarge(
                f"{waiting.size} bytes are more than the {limit} that {topic.name} accepts; "
                "put the body in the blob store"
            )
        return topic

    def _give_up(self, group: Sequence[Waiting], error: PackhorseError) -> None:
        for waiting in group:  # first: what is queued until this can be seen fails too
            waiting.fail(error)
        for waiting in self._queue.take_all():
            waiting.fail(NotAppended(f"a record before this one failed: {error}"))
