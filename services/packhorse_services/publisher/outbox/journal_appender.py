"""From the outbox to the journal: each package once, in the order of its numbers (R5, R26, R27).

Whoever does this holds the append lock, so nobody else appends for this author. The plain way is
`deliver`. What it leaves, and what a crash left, is reconciled: looked for in the journal first,
then appended one snapshot after the other.
"""

import concurrent.futures
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from psycopg import Connection

from packhorse.errors import Transient
from packhorse.messaging.api import Appended, Journal, LogEnd, RecordTooLarge, TopicMissing
from packhorse.runtime.metrics import PUBLISHER_APPEND_SECONDS
from packhorse_services.publisher.outbox import append_state, outbox_rows, producers
from packhorse_services.publisher.outbox.append_state import AppendState, Number
from packhorse_services.publisher.outbox.journal_search import (
    MOST_SOURCES,
    Findings,
    LogWatch,
    Sought,
    search,
)
from packhorse_services.publisher.outbox.outbox_rows import Sealed

logger = logging.getLogger(__name__)

_Places = Callable[[], Mapping[str, int]]
_WINDOW = 100
_FUTURE_S = 300.0
"""Far beyond any backend's own limit: a future that is not done by then never will be."""


class NotDelivered(Transient):
    """The journal did not confirm every package; they stay in the outbox and go out later."""


class TopicTooSmall(NotDelivered):
    """The package topic takes no record as large as one that waits; an operator must raise that."""


class JournalAppender:
    """Appends the packages of one author to one topic.

    `obstacle` is what keeps the outbox from being emptied though the journal is there, if known.
    """

    def __init__(
        self,
        journal: Journal,
        topic: str,
        *,
        most_producers: int = MOST_SOURCES,
        on_other_log: Callable[[], None] = lambda: None,
    ) -> None:
        """Take how many producers an agent may have at most, and what to call for another log.

        `on_other_log` is called before an offset that was used before is returned.
        """
        self._on_other_log = on_other_log
        self._journal, self._topic, self._most_producers = journal, topic, most_producers
        self.obstacle: TopicTooSmall | None = None
        self._watch = LogWatch(journal, topic)

    def check(self) -> None:
        """Raise the obstacle, if there is one; may be called by any thread."""
        obstacle = self.obstacle
        if obstacle is not None:
            raise TopicTooSmall(str(obstacle))

    def deliver(
        self, connection: Connection, packages: Sequence[Sealed], first_places: _Places = dict
    ) -> dict[str, int]:
        """Append packages of one snapshot when nothing else waits; returns their offsets.

        `first_places` is for packages that an earlier holder of the lock had, who may still append
        what he had begun to send: asked behind the append, it says where the journal has them
        first, and that is their offset (R5).

        Raises `NotDelivered` when one of them was not confirmed: `reconcile` before going on. It is
        `TopicTooSmall` when that won't help until an operator has raised the topic's limit.
        """
        futures = self._append(packages)
        offsets = _confirmed(futures)
        if offsets:
            self._check_log(connection, offsets.values())
            places = first_places()
            offsets = {one: places.get(one, offset) for one, offset in offsets.items()}
        complete = len(offsets) == len(packages)
        self.obstacle = self._too_large(packages, futures) or (None if complete else self.obstacle)
        if offsets:
            # A mark that is lost with the database is found again in the journal.
            outbox_rows.mark(connection, offsets, settled=complete, durable=False)
        if self.obstacle is not None:
            raise self.obstacle
        if not complete:
            raise NotDelivered("the journal did not confirm the append; it is looked up later")
        return offsets

    def is_in(self, journal_id: str) -> bool:
        """Return whether the topic is still that log. Raises what `Journal.identity` raises."""
        return self._watch.identity() == journal_id

    def _check_log(self, connection: Connection, offsets: Collection[int]) -> None:
        """Raise `NotDelivered` when nobody knows which log the offsets are of (R26)."""
        if not self._watch.is_suspicious(min(offsets), max(offsets)):
            return
        with connection.transaction():
            known = append_state.read_state(connection)
        if min(offsets) <= known.settled_offset:
            logger.warning(
                "the journal gives offsets again that packages had before",
                extra={"offset": min(offsets), "before": known.settled_offset},
            )
            self._on_other_log()
        try:
            if self.is_in(known.journal_id):
                return
        except (Transient, TopicMissing) as error:
            raise NotDelivered(f"the log's identity is not known: {error}") from error
        raise NotDelivered("the topic was made anew; what is in the new log is looked up")

    def reconcile(self, connection: Connection, state: AppendState) -> dict[str, int]:
        """Bring everything that waits into the journal; returns the offsets of all that waited.

        Also finds out whether the database is older than the journal, as after a restored
        backup, and then begins a new epoch. Raises a `Transient` when the journal is away.
        """
        journal_id = self._watch.identity()
        same = journal_id == state.journal_id
        start = state.settled_offset + 1 if same else LogEnd.OLDEST
        waiting = self._waiting(connection, state, journal_id)
        ids = [package_id for package_id, _, _ in waiting]
        if state.sequence == 0:
            found = self._begin_under_a_new_name(connection, state, same=same)
        else:
            found = self._search(connection, start, state.producer, ids)
        missing = [row for row in waiting if row[0] not in found.offsets]
        self._note(connection, state, found, missing)
        offsets = {**found.offsets, **self._again(connection, missing, found.end)}
        self.obstacle = None
        end = max([found.end - 1, *offsets.values()])
        with connection.transaction():
            append_state.mark_reconciled(connection, end)
        if waiting:
            extra = {"packages": len(waiting), "found": len(found.offsets)}
            logger.info("outbox reconciled", extra=extra)
        return offsets

    def _again(
        self, connection: Connection, missing: Sequence[tuple[str, int, Number]], end: int
    ) -> dict[str, int]:
        """Append what the journal lacks below `end`; what came behind it is read once."""
        wanted = frozenset(row[0] for row in missing)
        read = partial(self._search, connection, producer=None, wanted=wanted)
        places, offsets = partial(Findings(end).grown, read), dict[str, int]()
        for window in self._windows(connection, missing):
            offsets |= self.deliver(connection, window, places)
        return offsets

    def _waiting(
        self, connection: Connection, state: AppendState, journal_id: str
    ) -> Sequence[tuple[str, int, Number]]:
        """Return what waits; in another journal than before it does so from the beginning."""
        with connection.transaction():
            if journal_id != state.journal_id:
                if state.journal_id:
                    self._on_other_log()
                append_state.adopt_journal(connection, journal_id)
            return outbox_rows.waiting(connection)

    def _begin_under_a_new_name(
        self, connection: Connection, state: AppendState, *, same: bool
    ) -> Findings:
        """Find no package: a copy or backup of this database has another name.

        What replayable sources have published since that backup is found nevertheless; under
        which names of the author is not known, so those of other authors are noted with them.
        """
        start = state.settled_offset + 1
        found = self._search(connection, start, None, ()) if same else None
        with connection.transaction():
            if found:
                self._catch_up(connection, found)
            append_state.rename_producer(connection)
        return Findings(found.end if found else self._journal.bounds(self._topic).next)

    def _search(
        self,
        connection: Connection,
        start: int | LogEnd,
        producer: str | None,
        wanted: Collection[str],
    ) -> Findings:
        sought = Sought(producer, frozenset(wanted), self._most_producers)
        beat = partial(_keep_session, connection)
        return search(self._journal, self._topic, start, sought, beat=beat)

    def _catch_up(self, connection: Connection, found: Findings) -> None:
        producers.catch_up(connection, list(found.sources.values()), self._most_producers)

    def _note(
        self,
        connection: Connection,
        state: AppendState,
        found: Findings,
        missing: Sequence[tuple[str, int, Number]],
    ) -> None:
        """Mark what was found, and renumber what subscribers would take for a repetition."""
        with connection.transaction():
            self._catch_up(connection, found)
            if found.offsets:
                outbox_rows.mark(connection, found.offsets, settled=False)
            if found.highest > state.last:
                logger.warning(
                    "the journal is ahead of the database; a new epoch begins",
                    extra={"journal": found.highest, "database": state.last},
                )
                append_state.raise_epoch(connection, found.highest[0])
            if missing and found.highest > missing[0][2]:
                self._renumber(connection, [package_id for package_id, _, _ in missing])

    def _renumber(self, connection: Connection, package_ids: Sequence[str]) -> None:
        state = append_state.read_state(connection)
        for sequence, package in enumerate(
            outbox_rows.load(connection, package_ids), state.sequence + 1
        ):
            outbox_rows.renumber(
                connection, outbox_rows.seal(package.renumbered(state.epoch, sequence))
            )
        append_state.advance(connection, state, len(package_ids))

    def _windows(
        self, connection: Connection, missing: Iterable[tuple[str, int, Number]]
    ) -> Iterator[list[Sealed]]:
        """Yield what is missing, never two snapshots at once: a later one must not go first."""
        for _, rows in itertools.groupby(missing, key=lambda row: row[1]):
            ids = [package_id for package_id, _, _ in rows]
            for begin in range(0, len(ids), _WINDOW):
                with connection.transaction():
                    loaded = list(outbox_rows.load(connection, ids[begin : begin + _WINDOW]))
                yield [outbox_rows.seal(package) for package in loaded]

    def _append(self, packages: Sequence[Sealed]) -> dict[str, Future[Appended]]:
        """Append and wait until nothing is pending."""
        with PUBLISHER_APPEND_SECONDS.time():
            futures = {
                package.package_id: self._journal.append(self._topic, package.record)
                for package in packages
            }
            concurrent.futures.wait(futures.values(), timeout=_FUTURE_S)
        return futures

    def _too_large(
        self, packages: Sequence[Sealed], futures: Mapping[str, Future[Appended]]
    ) -> TopicTooSmall | None:
        refused = [package for package in packages if _is_too_large(futures[package.package_id])]
        if not refused:
            return None
        largest = max(refused, key=lambda package: len(package.record.value))
        return TopicTooSmall(
            f"topic {self._topic} refuses package {largest.package_id} of "
            f"{len(largest.record.value)} bytes as too large: it and all behind it wait in the "
            "outbox, and go out in order once the topic's largest record size is raised "
            "(max.message.bytes on Kafka; `packhorse topics check` says to what)"
        )


def _confirmed(futures: Mapping[str, Future[Appended]]) -> dict[str, int]:
    """Return the offsets of the packages that are surely in the journal."""
    return {
        package_id: future.result().offset
        for package_id, future in futures.items()
        if _is_confirmed(package_id, future)
    }


def _is_confirmed(package_id: str, future: Future[Appended]) -> bool:
    if not future.done():
        logger.warning("an append never ended", extra={"package_id": package_id})
        return False
    error = future.exception()
    if error is not None:
        extra = {"package_id": package_id, "error": str(error)}
        logger.warning("an append was not confirmed", extra=extra)
    return error is None


def _is_too_large(future: Future[Appended]) -> bool:
    return future.done() and isinstance(future.exception(), RecordTooLarge)


def _keep_session(connection: Connection) -> None:
    """Show Postgres that the holder of the lock lives."""
    connection.execute("SELECT")
