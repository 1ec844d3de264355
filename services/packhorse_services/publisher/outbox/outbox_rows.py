"""The outbox: packages committed at the author and on their way to the journal.

All of it runs in the caller's transaction, as the bookkeeper. A row without `log_offset` is not
known to be in the journal; a row with one keeps only what describes the distribution.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection

from packhorse.blobs.api import package_key
from packhorse.bookkeeping import stored_packages
from packhorse.messaging import numbered
from packhorse.messaging.api import Outgoing
from packhorse.runtime.tracing import TRACEPARENT
from packhorse.wire.messages import PackageEntry, PackageMessage
from packhorse.wire.package_codec import (
    ENTRY_HEADER,
    decode_entry,
    decode_stored_package,
    encode_package,
)
from packhorse_services.publisher.outbox.append_state import AppendState, Number
from packhorse_services.publisher.outbox.request import Draft

_PAGE = 500

IN_THIS_LOG = b"(log_offset IS NULL OR generation = (SELECT generation FROM bookkeeping.slot))"
"""SQL: whether a row's package is, or will be, in the log that the topic is now."""


@dataclass(frozen=True, slots=True)
class Outbound:
    """A numbered package. Packages of one `snapshot` show the same state of the content."""

    message: PackageMessage
    snapshot: int
    traceparent: str = ""
    producer: numbered.Number | None = None

    @property
    def package_id(self) -> str:
        """The package's id."""
        return self.message.entry.package_id

    @property
    def number(self) -> Number:
        """Epoch and sequence."""
        return self.message.entry.epoch, self.message.entry.sequence

    def renumbered(self, epoch: int, sequence: int) -> "Outbound":
        """Return the same package under another number."""
        entry = replace(self.message.entry, epoch=epoch, sequence=sequence)
        return replace(self, message=replace(self.message, entry=entry))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A package in the bytes that go to the outbox and to the journal."""

    outbound: Outbound
    record: Outgoing

    @property
    def package_id(self) -> str:
        """The package's id."""
        return self.outbound.package_id


def seal(outbound: Outbound) -> Sealed:
    """Encode a package once, for both places."""
    encoded = encode_package(outbound.message)
    headers = dict(encoded.headers)
    if outbound.traceparent:
        headers[TRACEPARENT] = outbound.traceparent.encode("ascii", "replace")
    record = Outgoing(encoded.value, headers)
    source = outbound.producer
    if source is not None:
        named = numbered.Numbered(source.producer, source.epoch, source.sequence, record)
        record = named.outgoing(None)
    return Sealed(outbound, record)


def number(drafts: Sequence[Draft], state: AppendState) -> list[Outbound]:
    """Give each draft the next number of the producer."""
    first = state.sequence + 1
    return [
        Outbound(_signed(draft.message, state, sequence), first, draft.traceparent, draft.producer)
        for sequence, draft in enumerate(drafts, first)
    ]


def _signed(message: PackageMessage, state: AppendState, sequence: int) -> PackageMessage:
    entry = replace(message.entry, producer=state.producer, epoch=state.epoch, sequence=sequence)
    return replace(message, entry=entry)


def remember_stored(connection: Connection, drafts: Sequence[Draft]) -> None:
    """Note which blobs the packages refer to, so that the cleanup knows them (R21)."""
    packages = [draft.stored for draft in drafts if draft.stored is not None]
    if packages:
        stored_packages.add(connection, packages)


def mark(
    connection: Connection, offsets: Mapping[str, int], *, settled: bool, durable: bool = True
) -> None:
    """Note where packages are in the journal, and drop their bytes.

    `settled` says that nothing that was numbered before them waits any longer. Without `durable`
    the transaction's commit does not wait for the disk.
    """
    connection.execute(
        """
        WITH found AS (
            SELECT * FROM unnest(%b::text[], %b::bigint[]) AS found (package_id, log_offset)
        ), stored AS (
            UPDATE bookkeeping.stored_package AS stored SET log_offset = found.log_offset
            FROM found WHERE stored.package_id = found.package_id
        ), slot AS (
            UPDATE bookkeeping.slot SET settled_offset = %s WHERE %s
        )
        UPDATE bookkeeping.outbox AS outbox SET log_offset = found.log_offset, value = NULL,
            generation = (SELECT generation FROM bookkeeping.slot)
        FROM found
        WHERE outbox.package_id = found.package_id AND outbox.log_offset IS NULL
            AND (%s OR (SELECT set_config('synchronous_commit', 'off', true)) = 'off')
        """,
        (list(offsets), list(offsets.values()), max(offsets.values()), settled, durable),
    )


def waiting(connection: Connection) -> list[tuple[str, int, Number]]:
    """Return id, snapshot and number of all packages that have no offset, in order."""
    rows = connection.execute(
        "SELECT package_id, snapshot, epoch, sequence FROM bookkeeping.outbox "
        "WHERE log_offset IS NULL ORDER BY epoch, sequence"
    ).fetchall()
    return [
        (package_id, snapshot, (epoch, sequence)) for package_id, snapshot, epoch, sequence in rows
    ]


def load(connection: Connection, package_ids: Sequence[str]) -> Iterator[Outbound]:
    """Yield waiting packages in order, one in memory at a time."""
    for package_id in package_ids:
        row = connection.execute(
            "SELECT value, snapshot, coalesce(traceparent, ''), "
            "producer_name, producer_epoch, producer_sequence FROM bookkeeping.outbox "
            "WHERE package_id = %s AND log_offset IS NULL",
            (package_id,),
        ).fetchone()
        if row is not None:
            message = decode_stored_package(row[0])
            source = None if row[3] is None else numbered.Number(*row[3:])
            yield Outbound(message, row[1], row[2], source)


def renumber(connection: Connection, package: Sealed) -> None:
    """Store a waiting package under its new number."""
    (epoch, sequence), record = package.outbound.number, package.record
    connection.execute(
        "UPDATE bookkeeping.outbox SET epoch = %s, sequence = %s, entry = %s, value = %s "
        "WHERE package_id = %s AND log_offset IS NULL",
        (epoch, sequence, record.headers[ENTRY_HEADER], record.value, package.package_id),
    )


def offsets_of(connection: Connection, package_ids: Sequence[str]) -> dict[str, int | None]:
    """Return those of the packages that are committed, with their offsets."""
    rows = connection.execute(
        "SELECT package_id, log_offset FROM bookkeeping.outbox WHERE package_id = ANY(%s)",
        (list(package_ids),),
    ).fetchall()
    return dict(rows)


def known(connection: Connection, package_ids: Sequence[str]) -> set[str]:
    """Return those of the ids that packages have, also when the log has forgotten these."""
    rows = connection.execute(
        "SELECT package_id FROM bookkeeping.outbox WHERE package_id = ANY(%b) "
        "UNION SELECT package_id FROM bookkeeping.stored_package WHERE key = ANY(%b)",
        (list(package_ids), [package_key(one) for one in package_ids]),
    ).fetchall()
    return {package_id for (package_id,) in rows}


def entry_of(row: bytes) -> PackageEntry:
    """Decode the stored description of a package."""
    return decode_entry({ENTRY_HEADER: row})


def entries_above(connection: Connection, number: Number) -> Iterator[PackageEntry]:
    """Yield what describes the packages above `number`, in order, a page in memory at a time."""
    rows: list[Any] = [(*number, b"")]
    while rows:
        rows = connection.execute(
            "SELECT epoch, sequence, entry FROM bookkeeping.outbox "
            "WHERE (epoch, sequence) > (%s, %s) ORDER BY epoch, sequence LIMIT %s",
            (*rows[-1][:2], _PAGE),
        ).fetchall()
        yield from (entry_of(entry) for _, _, entry in rows)
        if len(rows) < _PAGE:
            return


def forget_below(connection: Connection, journal_id: str, offset: int, limit: int) -> int:
    """Remove up to `limit` distributions that the log has forgotten; returns how many.

    Those of an earlier log go first, whatever their offsets. `offset` is the oldest of the log
    `journal_id`: where the packages are in another one by now it says nothing. A package that is
    not in the journal yet stays, and keeps none of the others. An idempotency key that lives
    longer than its distribution keeps the offset.
    """
    row: Any = connection.execute(FORGET, (limit, journal_id, offset, limit, limit)).fetchone()
    return int(row[0])


FORGET = """
    WITH earlier AS (
        SELECT outbox.epoch, outbox.sequence FROM bookkeeping.outbox
        WHERE generation < (SELECT generation FROM bookkeeping.slot) AND log_offset IS NOT NULL
        ORDER BY generation, log_offset LIMIT %s FOR UPDATE SKIP LOCKED
    ), below AS (
        SELECT outbox.epoch, outbox.sequence FROM bookkeeping.outbox
        WHERE generation = (SELECT generation FROM bookkeeping.slot WHERE journal_id = %s)
            AND log_offset < %s
        ORDER BY generation, log_offset LIMIT %s FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM bookkeeping.outbox WHERE (epoch, sequence) IN (
            SELECT * FROM earlier UNION ALL SELECT * FROM below LIMIT %s)
        RETURNING package_id, log_offset
    ), answers AS (
        UPDATE bookkeeping.idempotency_key AS known SET log_offset = gone.log_offset
        FROM gone WHERE known.package_id = gone.package_id
    )
    SELECT count(*) FROM gone
"""
