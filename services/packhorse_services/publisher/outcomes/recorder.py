"""Takes the status topic in: outcomes and the cursor in one transaction (R9, R18).

A repeat changes nothing, so a crash anywhere leads to the same rows. What can't be read is passed
over (R30).
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import Connection

from packhorse.db.transactions import bookkeeping
from packhorse.messaging.api import Journal, JournalUnavailable, Reader, Record
from packhorse.messaging.reading import read_to
from packhorse.runtime.metrics import PUBLISHER_STATUSES_RECORDED
from packhorse.wire.codec import decode_status
from packhorse.wire.command_codec import decode_command_status
from packhorse.wire.messages import CommandStatusMessage, Status, StatusMessage
from packhorse.wire.package_codec import ENTRY_HEADER, PACKAGE_ID_HEADER
from packhorse.wire.record import Undecodable, message_type
from packhorse.wire.topics import Topics
from packhorse_services.publisher.outcomes import outcome_rows
from packhorse_services.publisher.outcomes.outcome_rows import Key, StoredOutcome, key_of
from packhorse_services.publisher.outcomes.progress import TopicCursor, move_cursor, read_cursor

_MAX_NAME = 200
_MAX_REASON = 2_000
_LAST_MS = 253_402_300_799_000


@dataclass(slots=True)
class StatusRecords:
    """What some records report about one publisher agent: its packages, then one command."""

    outcomes: dict[Key, StoredOutcome] = field(default_factory=dict)
    """The last decision of each package at each subscriber, IMPORTED included."""
    taken_back: set[Key] = field(default_factory=set)
    """Of which packages an earlier decision came too, or a later one came first."""
    command: CommandStatusMessage | None = None

    @property
    def imported(self) -> list[StoredOutcome]:
        """The imports that only matter where an earlier decision is stored (R18)."""
        return [one for one in self.outcomes.values() if not self._is_stored(one)]

    @property
    def stored(self) -> list[StoredOutcome]:
        """The outcomes that leave a row: imports only when they have taken something back."""
        return [one for one in self.outcomes.values() if self._is_stored(one)]

    def _is_stored(self, outcome: StoredOutcome) -> bool:
        return outcome.status is not Status.IMPORTED or key_of(outcome) in self.taken_back


def read_statuses(records: Iterable[Record], agent: str) -> Iterator[StatusRecords]:
    """Yield what `records` report, in order."""
    reported = StatusRecords()
    for record in records:
        try:
            if message_type(record.headers) == CommandStatusMessage.__name__:
                command = decode_command_status(record.headers, record.value)
                if command.publisher_agent == agent:
                    reported.command = command
                    yield reported
                    reported = StatusRecords()
            else:
                _add_status(reported, decode_status(record.headers, record.value), agent)
        except Undecodable as error:
            logger.warning(
                "undecodable status skipped", extra={"offset": record.offset, "error": str(error)}
            )
    yield reported


def _add_status(reported: StatusRecords, status: StatusMessage, agent: str) -> None:
    if status.publisher_agent != agent:
        return
    outcome = _outcome(status)
    if not _is_sound(outcome):
        logger.warning(
            "a status without a usable subscriber name or offset was skipped",
            extra={"subscriber": outcome.subscriber[:_MAX_NAME], "offset": outcome.offset},
        )
        return
    key = key_of(outcome)
    before = reported.outcomes.setdefault(key, outcome)
    if outcome.status is not before.status:
        reported.taken_back.add(key)
    if outcome.decided_ms > before.decided_ms:
        reported.outcomes[key] = outcome


def _outcome(status: StatusMessage) -> StoredOutcome:
    return StoredOutcome(
        subscriber=status.subscriber,
        journal_id=_clean(status.journal_id, _MAX_NAME),
        offset=status.offset,
        package_id=_clean(status.package_id, _MAX_NAME),
        status=status.status,
        attempts=max(0, status.attempts),
        reason=_clean(status.reason, _MAX_REASON),
        command_id=_clean(status.command_id, _MAX_NAME),
        decided_ms=status.decided_ms if 0 < status.decided_ms <= _LAST_MS else 0,
        left_out=status.left_out,
    )


def _is_sound(outcome: StoredOutcome) -> bool:
    name = outcome.subscriber
    return 0 < len(name) <= _MAX_NAME and name.isprintable() and outcome.offset >= 0


def _clean(text: str, limit: int) -> str:
    """Return what Postgres can hold of a text."""
    return text.replace("\0", "\ufffd")[:limit]


logger = logging.getLogger(__name__)

NoteCommand = Callable[[Connection, CommandStatusMessage], bool]
"""Stores what became of a command; returns whether that was new."""

_CHECK_S = 15.0
_LOOKUPS = 20
_LOOKUPS_S = 10.0
"""Packages of one batch that are looked for in the log; far below the idle limit of the session."""


class Recorder:
    """Reads the status topic for one agent, from its durable cursor on. Used by one thread."""

    def __init__(
        self, journal: Journal, topics: Topics, agent: str, note_command: NoteCommand
    ) -> None:
        self._journal, self._topics, self._agent = journal, topics, agent
        self._note_command = note_command
        self._reader: Reader | None = None
        self._cursor = TopicCursor("", -1)
        self._stored: TopicCursor | None = None
        self._packages = ""
        self._checked = 0.0

    @property
    def packages(self) -> str:
        """The package topic's identity, as it was when the last `record` began."""
        return self._packages

    def record(self, connection: Connection) -> TopicCursor:
        """Take in all that the topic holds now; returns up to where it is recorded.

        Raises `JournalUnavailable` unless its end was reached, or what the database raises; then
        the next call goes on.
        """
        try:
            reader = self._opened(connection)
            end = self._journal.bounds(self._topics.status).next
            if end < self._cursor.offset:
                raise JournalUnavailable("the status topic is another one; it is read anew")
            self._read(connection, reader, end)
        except BaseException:
            self.close()
            raise
        return self._cursor

    def close(self) -> None:
        """Close the reader; the next `record` begins at the durable cursor."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _opened(self, connection: Connection) -> Reader:
        """Return a reader of the log that there is now, at the cursor."""
        if self._reader is None or time.monotonic() > self._checked + _CHECK_S:
            identity = self._journal.identity(self._topics.status)
            self._packages = self._journal.identity(self._topics.package)
            self._checked = time.monotonic()
            if self._reader is None or identity != self._cursor.journal_id:
                self.close()
                self._cursor = self._start(connection, identity)
                self._reader = self._journal.reader(
                    self._topics.status, self._cursor.offset, partition=0
                )
        return self._reader

    def _start(self, connection: Connection, identity: str) -> TopicCursor:
        with bookkeeping(connection):
            known = read_cursor(connection, self._agent, self._topics.status)
        self._stored = known
        bounds = self._journal.bounds(self._topics.status)
        if known is None or known.journal_id != identity:
            return TopicCursor(identity, bounds.oldest)
        if bounds.oldest <= known.offset <= bounds.next:
            return known
        logger.warning(
            "statuses left the topic before they were recorded"
            if known.offset < bounds.oldest
            else "the status topic ends before what was recorded of it; all of it is read again",
            extra={"wanted": known.offset, "oldest": bounds.oldest, "next": bounds.next},
        )
        return TopicCursor(identity, bounds.oldest)

    def _read(self, connection: Connection, reader: Reader, end: int) -> None:
        self._move(connection, (), reader.position())
        for records in read_to(reader, end):
            self._move(connection, records, reader.position())

    def _move(self, connection: Connection, records: Sequence[Record], position: int) -> None:
        """Record what was read, and that everything below `position` was."""
        cursor = TopicCursor(self._cursor.journal_id, position)
        if not records and cursor == self._stored:
            return
        batch = list(read_statuses(records, self._agent))
        # A lookup in the journal takes its time, and a transaction that idles is ended.
        entries = self._entries(connection, [one for reported in batch for one in reported.stored])
        with bookkeeping(connection):
            for reported in batch:
                self._take_in(connection, reported, entries)
            move_cursor(connection, self._agent, self._topics.status, cursor)
        self._cursor = self._stored = cursor
        PUBLISHER_STATUSES_RECORDED.inc(len(records))

    def _take_in(
        self,
        connection: Connection,
        reported: StatusRecords,
        entries: Mapping[outcome_rows.Key, bytes],
    ) -> None:
        outcome_rows.imported_after_all(connection, self._agent, reported.imported)
        rows = [
            (
                one,
                entries.get(outcome_rows.key_of(one))
                if one.status is Status.REMOVED_FAILED
                else None,
            )
            for one in reported.stored
        ]
        outcome_rows.write(connection, self._agent, rows)
        if reported.command is not None and self._note_command(connection, reported.command):
            outcome_rows.forget_behind_reset(connection, self._agent, reported.command.command_id)

    def _entries(
        self, connection: Connection, outcomes: Sequence[StoredOutcome]
    ) -> dict[outcome_rows.Key, bytes]:
        """Return the entries of failed packages: what is needed once the log has forgotten them."""
        failed = [one for one in outcomes if one.status is Status.REMOVED_FAILED]
        if not failed:
            return {}
        with bookkeeping(connection):
            known = outcome_rows.entries(
                connection, {one.package_id for one in failed if one.package_id}
            )
        unknown = [one for one in failed if one.package_id not in known]
        found = {
            outcome_rows.key_of(one): known[one.package_id]
            for one in failed
            if one.package_id in known
        }
        return found | self._look_up(unknown)

    def _look_up(self, unknown: Sequence[StoredOutcome]) -> dict[outcome_rows.Key, bytes]:
        """Return what the log has of packages, of the first few: the others do without."""
        found = {}
        until = time.monotonic() + _LOOKUPS_S
        for one in unknown[:_LOOKUPS]:
            entry = self._entry_in_log(one) if time.monotonic() < until else None
            if entry is not None:
                found[outcome_rows.key_of(one)] = entry
        return found

    def _entry_in_log(self, outcome: StoredOutcome) -> bytes | None:
        if outcome.journal_id != self._packages:
            return None
        record = self._journal.read_at(self._topics.package, outcome.offset)
        if record is None:
            return None
        named = record.headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace")
        return record.headers.get(ENTRY_HEADER) if outcome.package_id in ("", named) else None
