"""Takes the status topic in: outcomes and the cursor in one transaction (R9, R18).

A repeat changes nothing, so a crash anywhere leads to the same rows.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from psycopg import Connection

from packhorse.messaging.api import Journal, JournalUnavailable, OffsetOutOfRange, Reader, Record
from packhorse.runtime.metrics import PUBLISHER_STATUSES_RECORDED
from packhorse.wire.messages import CommandStatusMessage, Status
from packhorse.wire.package_codec import ENTRY_HEADER, PACKAGE_ID_HEADER
from packhorse.wire.topics import Topics
from packhorse_services.publisher.outcomes import store
from packhorse_services.publisher.outcomes.cursors import Cursor, move_cursor, read_cursor
from packhorse_services.publisher.outcomes.statuses import Told, read_statuses
from packhorse_services.publisher.outcomes.store import Outcome
from packhorse_services.publisher.outcomes.turn import bookkeeping

logger = logging.getLogger(__name__)

NoteCommand = Callable[[Connection, CommandStatusMessage], bool]
"""Takes in what became of a command; tells whether that was news."""

_POLL_S = 0.5
_PATIENCE_S = 20.0
_CHECK_S = 15.0
_LOOKUPS = 20
_LOOKUPS_S = 10.0
"""Packages of one batch that are looked for in the log; far below the turn's idle limit."""


class Recorder:
    """Reads the status topic for one agent, from its durable cursor on. Used by one thread."""

    def __init__(
        self, journal: Journal, topics: Topics, agent: str, note_command: NoteCommand
    ) -> None:
        self._journal, self._topics, self._agent = journal, topics, agent
        self._note_command = note_command
        self._reader: Reader | None = None
        self._cursor = Cursor("", -1)
        self._stored: Cursor | None = None
        self._packages = ""
        self._checked = 0.0

    @property
    def packages(self) -> str:
        """The package topic's identity, as it was when the last `record` began."""
        return self._packages

    def record(self, connection: Connection) -> Cursor:
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
        """Let go of the reader; the next `record` begins at the durable cursor."""
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

    def _start(self, connection: Connection, identity: str) -> Cursor:
        with bookkeeping(connection):
            known = read_cursor(connection, self._agent, self._topics.status)
        self._stored = known
        bounds = self._journal.bounds(self._topics.status)
        if known is None or known.journal_id != identity:
            return Cursor(identity, bounds.oldest)
        if not bounds.oldest <= known.offset <= bounds.next:
            logger.warning("statuses were lost", extra={"wanted": known.offset})
            return Cursor(identity, bounds.oldest)
        return known

    def _read(self, connection: Connection, reader: Reader, end: int) -> None:
        patience = time.monotonic() + _PATIENCE_S
        self._move(connection, (), reader.position())
        while self._cursor.offset < end:
            try:
                records = reader.poll(_POLL_S)
            except OffsetOutOfRange as error:  # retention was faster than we are
                raise JournalUnavailable("the status topic was cut; it is read anew") from error
            self._move(connection, records, reader.position())
            if records:
                patience = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > patience:
                raise JournalUnavailable("the status topic's end was not reached; try again later")

    def _move(self, connection: Connection, records: Sequence[Record], position: int) -> None:
        """Record what was read, and that everything below `position` was."""
        cursor = Cursor(self._cursor.journal_id, position)
        if not records and cursor == self._stored:
            return
        batch = list(read_statuses(records, self._agent, self._packages))
        # A lookup in the journal takes its time, and a transaction that idles is ended.
        entries = self._entries(connection, [one for told in batch for one in told.stored])
        with bookkeeping(connection):
            for told in batch:
                self._take_in(connection, told, entries)
            move_cursor(connection, self._agent, self._topics.status, cursor)
        self._cursor = self._stored = cursor
        PUBLISHER_STATUSES_RECORDED.inc(len(records))

    def _take_in(
        self, connection: Connection, told: Told, entries: Mapping[store.Key, bytes]
    ) -> None:
        store.imported_after_all(connection, self._agent, told.imported)
        rows = [
            (one, entries.get(store.key_of(one)) if one.status is Status.REMOVED_FAILED else None)
            for one in told.stored
        ]
        store.write(connection, self._agent, rows)
        if told.command is not None and self._note_command(connection, told.command):
            store.forget_behind_reset(connection, self._agent, told.command.command_id)

    def _entries(
        self, connection: Connection, outcomes: Sequence[Outcome]
    ) -> dict[store.Key, bytes]:
        """Return the entries of failed packages: what is needed once the log has forgotten them."""
        failed = [one for one in outcomes if one.status is Status.REMOVED_FAILED]
        if not failed:
            return {}
        with bookkeeping(connection):
            known = store.entries(connection, {one.package_id for one in failed if one.package_id})
        unknown = [one for one in failed if one.package_id not in known]
        found = {
            store.key_of(one): known[one.package_id] for one in failed if one.package_id in known
        }
        return found | self._look_up(unknown)

    def _look_up(self, unknown: Sequence[Outcome]) -> dict[store.Key, bytes]:
        """Return what the log has of packages, of the first few: the others do without."""
        found = {}
        until = time.monotonic() + _LOOKUPS_S
        for one in unknown[:_LOOKUPS]:
            entry = self._entry_in_log(one) if time.monotonic() < until else None
            if entry is not None:
                found[store.key_of(one)] = entry
        return found

    def _entry_in_log(self, outcome: Outcome) -> bytes | None:
        if outcome.journal_id != self._packages:
            return None
        record = self._journal.read_at(self._topics.package, outcome.offset)
        if record is None:
            return None
        named = record.headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace")
        return record.headers.get(ENTRY_HEADER) if outcome.package_id in ("", named) else None
