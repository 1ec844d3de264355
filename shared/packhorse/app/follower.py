"""`Follower`: reads a topic of the journal from a position that its caller keeps."""

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal, Self

from packhorse.app.configuration import configured
from packhorse.app.log_position import LogPosition, PartitionPosition, digest, mark
from packhorse.clock import Clock, SystemClock
from packhorse.errors import Permanent, Transient
from packhorse.messaging.api import (
    Bounds,
    Journal,
    JournalUnavailable,
    OffsetOutOfRange,
    Record,
    TopicMissing,
)
from packhorse.messaging.open import open_journal
from packhorse.messaging.reading import Polled, follow, keep_yielding

Start = Literal["oldest", "next"]


class RecordsMissed(Permanent):
    """Records behind the position have left the journal; behind `position` are those that are left.

    What they said is lost to this reader: it has to learn it in another way, then goes on there.
    """

    def __init__(self, reason: str, position: str) -> None:
        super().__init__(reason)
        self.position = position


class AnotherLog(RecordsMissed):
    """The journal is not the one that the position is of: created anew, or restored from a backup.

    Its records may be other ones at the same offsets. `position` is its beginning.
    """


class Follower:
    """The records of a topic in their order, for ever, each with the position behind it.

        for record, position in Follower("aemdistribution_event", after=load()):
            with connection.transaction():
                work(record)
                save(position)

    What is committed together with its position is done exactly once, whatever dies or goes away:
    give the last one as `after`. Without one it begins at the `oldest` record that is left, or with
    the `next` to come. A journal that is away is waited for, with a warning in the log.

    Order is that of a partition; between partitions there is none. A record that the journal can't
    read comes with its reason in `damage`. The journal is `journal_url`, else
    PACKHORSE_JOURNAL_URL (or `…_FILE`), else that of the stack on the folder `data`; which database
    is set plays no part.

    Iterating raises `RecordsMissed` when the log has forgotten what comes next, `AnotherLog` when
    it is another one, both with the `position` to go on from; `TopicMissing`; and
    `InvalidConfiguration`, `InvalidLogPosition` when it is made.
    """

    def __init__(
        self,
        topic: str,
        *,
        after: str | None = None,
        start: Start = "oldest",
        journal_url: str | None = None,
        data: Path | str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Connect to nothing yet."""
        self.topic = topic
        self._url = configured({"journal_url": journal_url}, data, needs="journal_url").journal_url
        self._position = None if after is None else LogPosition.parse(after)
        self._start: Start = start
        self._clock, self._stopping = clock or SystemClock(), threading.Event()
        self._polled = Polled()

    @property
    def position(self) -> str | None:
        """The position behind the last record that was given; None until the journal was seen."""
        return None if self._position is None else str(self._position)

    def begin(self) -> str:
        """Return the position where it begins, for who keeps it before the first record comes.

        Raises what iterating does, and `JournalUnavailable`.
        """
        with closing(self._opened()) as journal:
            self._look(journal)
        return str(self._position)

    def stop(self) -> None:
        """Let the iteration end within a second; for another thread, or a signal's handler."""
        self._stopping.set()
        self._polled.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[tuple[Record, str]]:
        """Give the records behind the position; a second iteration goes on where the first was."""
        with (
            closing(self._opened()) as journal,
            closing(self._records(journal)) as records,
        ):
            for record in records:
                self._position = self._now.behind(record)
                yield record, str(self._position)

    def _opened(self) -> Journal:
        return open_journal(self._url, client_name="packhorse-follower")

    def _records(self, journal: Journal) -> Generator[Record, None, None]:
        steps = partial(self._followed, journal)
        return keep_yielding(self._stopping, self._clock, self.topic, steps, Transient)

    @property
    def _now(self) -> LogPosition:
        if self._position is None:
            raise AssertionError("a log is read whose beginning nobody has looked up")
        return self._position

    def _followed(self, journal: Journal) -> Iterator[Record]:
        """Follow the log until it can't be read; every try begins with a look at what log it is."""
        self._look(journal)
        try:
            opened = journal.reader(self.topic, self._now.starts())
            with self._polled.polling(opened) as reader:
                is_over = partial(self._check, journal)
                for step in follow(reader, self._stopping, self._clock, is_over=is_over):
                    yield from step.records
        except (OffsetOutOfRange, TopicMissing) as error:
            self._check(journal)
            raise JournalUnavailable(f"{self.topic} can't be read: {error}") from error

    def _look(self, journal: Journal) -> None:
        if self._position is None:
            self._position = self._first(journal)
        self._check(journal)

    def _first(self, journal: Journal) -> LogPosition:
        identity, places = journal.identity(self.topic), []
        for number in range(journal.partitions(self.topic)):
            bounds = journal.bounds(self.topic, number)
            at = bounds.oldest if self._start == "oldest" else bounds.next
            places.append(PartitionPosition(at))
        return LogPosition(mark(identity), tuple(places))

    def _check(self, journal: Journal) -> bool:
        """Raise what keeps the reader from going on; return that nothing does.

        The record before the position has to be the one that was read: a log that was cut at its
        end, and has grown since, uses offsets a second time (R24).
        """
        if mark(journal.identity(self.topic)) != self._now.log:
            raise self._another(journal, f"{self.topic} is not the topic that was read before")
        for number, place in enumerate(self._now.partitions):
            bounds = journal.bounds(self.topic, number)
            if bounds.next < place.next:
                raise self._another(
                    journal,
                    f"{self.topic}/{number} ends at {bounds.next - 1}, before the offset "
                    f"{place.next - 1} that was read already",
                )
            if bounds.oldest > place.next:
                raise self._missed(number, place, bounds)
            self._compare(journal, number, place)
        return False

    def _compare(self, journal: Journal, number: int, place: PartitionPosition) -> None:
        record = journal.read_at(self.topic, place.next - 1, number) if place.last else None
        if record is not None and not record.damage and digest(record) != place.last:
            raise self._another(
                journal,
                f"{self.topic}/{number} has another record at {place.next - 1} than the one that "
                "was read there",
            )

    def _another(self, journal: Journal, reason: str) -> AnotherLog:
        identity, count = journal.identity(self.topic), journal.partitions(self.topic)
        oldest = [journal.bounds(self.topic, number).oldest for number in range(count)]
        beginning = LogPosition(mark(identity), tuple(map(PartitionPosition, oldest)))
        return AnotherLog(
            f"{reason}: the journal was created anew, or comes from a backup; make your state "
            "good, then go on from the position of this error",
            str(beginning),
        )

    def _missed(self, number: int, place: PartitionPosition, bounds: Bounds) -> RecordsMissed:
        left = self._now.at(number, PartitionPosition(bounds.oldest))
        return RecordsMissed(
            f"{self.topic}/{number} begins at {bounds.oldest}, but {place.next} was to be read "
            "next: the records between have left the journal; make your state good, then go on "
            "from the position of this error",
            str(left),
        )
