"""The commit of a group: its numbers, its packages and the keys of its requests, or nothing."""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from packhorse.messaging import numbered
from packhorse.wire.package_codec import ENTRY_HEADER
from packhorse_services.publisher.outbox.append_state import AppendLockLost, AppendState
from packhorse_services.publisher.outbox.outbox_rows import Sealed
from packhorse_services.publisher.outbox.request import DistributionRequest


def write(
    connection: Connection,
    agent: str,
    state: AppendState,
    packages: Sequence[Sealed],
    requests: Sequence[DistributionRequest],
) -> None:
    """Write packages with the numbers after `state`, and the key of each one's request.

    Runs in the lock's transaction, as the bookkeeper. Raises `AppendLockLost` when the numbers are
    somebody else's.
    """
    moved = (len(packages), *state.last)
    written = connection.execute(
        _WRITE, (*moved, agent, *_key_columns(packages, requests), *_package_columns(packages))
    )
    if written.rowcount != len(packages):
        raise AppendLockLost("another publisher has the append lock; try again")


_WRITE = """
    WITH moved AS (
        UPDATE bookkeeping.slot SET sequence = sequence + %s
        WHERE epoch = %s AND sequence = %s RETURNING 1
    ), keys AS (
        INSERT INTO bookkeeping.idempotency_key (agent, package_id, caller, key, fingerprint)
        SELECT %b, keyed.* FROM moved,
            unnest(%b::text[], %b::text[], %b::text[], %b::bytea[])
                AS keyed (package_id, caller, key, fingerprint)
        WHERE key IS NOT NULL
    )
    INSERT INTO bookkeeping.outbox
        (epoch, sequence, snapshot, package_id, entry, value, traceparent,
            producer_name, producer_epoch, producer_sequence)
    SELECT package.* FROM moved, unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::text[],
        %b::bytea[], %b::bytea[], %b::text[], %b::text[], %b::bigint[], %b::bigint[]) AS package
"""


def _key_columns(
    packages: Sequence[Sealed], requests: Sequence[DistributionRequest]
) -> tuple[list[Any], ...]:
    keys = [request.idempotency_key for request in requests]
    return (
        [package.package_id for package in packages],
        [request.caller for request in requests],
        keys,
        [
            None if request.idempotency_key is None else request.fingerprint()
            for request in requests
        ],
    )


def _package_columns(packages: Sequence[Sealed]) -> tuple[list[Any], ...]:
    outbounds = [package.outbound for package in packages]
    return (
        [outbound.number[0] for outbound in outbounds],
        [outbound.number[1] for outbound in outbounds],
        [outbound.snapshot for outbound in outbounds],
        [outbound.package_id for outbound in outbounds],
        [package.record.headers[ENTRY_HEADER] for package in packages],
        [package.record.value for package in packages],
        [outbound.traceparent or None for outbound in outbounds],
        *_producer_columns([outbound.producer for outbound in outbounds]),
    )


def _producer_columns(numbers: Sequence[numbered.Number | None]) -> tuple[list[Any], ...]:
    return (
        [number and number.producer for number in numbers],
        [number and number.epoch for number in numbers],
        [number and number.sequence for number in numbers],
    )
