"""Registering producers, and returning how far they have come."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg_pool import AsyncConnectionPool

from packhorse.db.transactions import as_bookkeeper
from packhorse.errors import Permanent, Transient
from packhorse.messaging.deduplication import NOTHING, ProducerFenced
from packhorse.messaging.numbered import MAX_NAME
from packhorse_services.publisher.outbox.producers import ProducerKey

_LOCK = 0x70726F64  # "prod"
_AT_ONCE = 4
"""How many register or pass over at a time: each may wait for a lock, which takes a connection."""

_SHARE = 10
"""One caller may have the n-th part of all producers."""


class TooManyProducers(Transient):
    """As many producers are known as may be, of all or of one caller; unused ones expire."""


class ProducerInUse(Transient):
    """Requests of this producer are being published; register it again in a moment."""


class UnknownProducer(Permanent):
    """The caller has no such producer, or it has expired."""


class BadProducerName(Permanent):
    """The name and the caller's are together too long, or hold what can't be printed."""


@dataclass(frozen=True, slots=True)
class Producer:
    """How far a replayable source has come; sequences are `NOTHING` before the first."""

    name: str
    epoch: int
    last_sequence: int
    last_persisted: int
    registered_at: datetime
    used_at: datetime


class ProducerRegistry:
    """The producers of one publisher agent."""

    def __init__(
        self,
        pool: AsyncConnectionPool[AsyncConnection],
        agent: str,
        limit: int,
        *,
        patience_s: float = 1.0,
    ) -> None:
        """Take how many producers there may be, and how long to wait for one that publishes."""
        self._pool, self._agent, self._limit = pool, agent, limit
        self._share = max(1, limit // _SHARE)
        self._patience_ms = round(patience_s * 1000)
        self._places = asyncio.Semaphore(_AT_ONCE)

    def key(self, caller: str, name: str) -> ProducerKey:
        """Return whose producer it is. Raises `BadProducerName`."""
        key = ProducerKey(self._agent, caller, name)
        if len(key.qualified) > MAX_NAME or not key.qualified.isprintable():
            raise BadProducerName(
                f"agent, producer and caller have {len(key.qualified)} characters together; they "
                f"must be printable and at most {MAX_NAME}"
            )
        return key

    async def register(self, caller: str, name: str) -> Producer:
        """Give the producer a new epoch, which fences whoever published under an older one.

        Waits a moment for a group of its requests that is being committed. Raises
        `ProducerInUse`, `TooManyProducers` and `BadProducerName`.
        """
        key = self.key(caller, name)
        async with self._places, as_bookkeeper(self._pool) as connection:
            await self._limit_patience(connection)
            with _in_use_reported():
                await self._renew_or_add(connection, key)
            return await _read(connection, key)

    async def _limit_patience(self, connection: AsyncConnection) -> None:
        await connection.execute(
            "SELECT set_config('lock_timeout', %s, true)", (str(self._patience_ms),)
        )

    async def _renew_or_add(self, connection: AsyncConnection, key: ProducerKey) -> None:
        renewed = await connection.execute(
            """
            UPDATE bookkeeping.producer SET epoch = nextval('bookkeeping.producer_epoch'),
                registered_at = clock_timestamp(), used_at = clock_timestamp()
            WHERE (agent, caller, name) = (%s, %s, %s)
            """,
            key,
        )
        if renewed.rowcount == 0:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            await self._check_room(connection, key)
            await self._add(connection, key)

    async def _add(self, connection: AsyncConnection, key: ProducerKey) -> None:
        """Add a producer; of one that has expired, the log may still hold the last sequence."""
        await connection.execute(
            """
            INSERT INTO bookkeeping.producer (agent, caller, name, epoch, last_sequence)
            SELECT %s, %s, %s, nextval('bookkeeping.producer_epoch'), coalesce(
                (SELECT max(producer_sequence) FROM bookkeeping.outbox WHERE producer_name = %s),
                %s)
            ON CONFLICT (agent, caller, name) DO UPDATE
            SET epoch = nextval('bookkeeping.producer_epoch'), registered_at = clock_timestamp()
            """,
            (*key, key.qualified, NOTHING),
        )

    async def _check_room(self, connection: AsyncConnection, key: ProducerKey) -> None:
        cursor = await connection.execute(
            """
            SELECT count(*), count(*) FILTER (WHERE caller = %s),
                coalesce(bool_or(caller = %s AND name = %s), false)
            FROM bookkeeping.producer WHERE agent = %s
            """,
            (key.caller, key.caller, key.name, key.agent),
        )
        known, of_caller, is_known = await cursor.fetchone() or (0, 0, False)
        if is_known:
            return  # added by another request just now
        if of_caller >= self._share:
            raise TooManyProducers(
                f"you have {of_caller} producers, and {self._share} are the most that one caller "
                "may have; use one of them, or wait until an unused one has expired"
            )
        if known >= self._limit:
            raise TooManyProducers(
                f"{self._limit} producers are known, which is the limit; use one that is, or wait "
                "until an unused one has expired"
            )

    async def pass_over(self, caller: str, name: str, epoch: int, sequence: int) -> Producer:
        """Let nothing up to `sequence` be published any more, as of a source that is done with it.

        Raises `UnknownProducer`, `ProducerInUse`, and `ProducerFenced` for an epoch that is not
        the producer's.
        """
        key = ProducerKey(self._agent, caller, name)
        async with self._places, as_bookkeeper(self._pool) as connection:
            await self._limit_patience(connection)
            with _in_use_reported():
                passed = await connection.execute(
                    """
                    UPDATE bookkeeping.producer SET used_at = clock_timestamp(),
                        last_sequence = greatest(last_sequence, %s)
                    WHERE (agent, caller, name, epoch) = (%s, %s, %s, %s)
                    """,
                    (sequence, *key, epoch),
                )
            found = await _read(connection, key)
        if passed.rowcount == 0:
            raise ProducerFenced(
                f"the producer's epoch is {found.epoch}, not {epoch}; "
                f"PUT /producers/{name} makes it yours, with a new epoch"
            )
        return found

    async def find(self, caller: str, name: str) -> Producer:
        """Return the caller's producer. Raises `UnknownProducer`."""
        async with as_bookkeeper(self._pool) as connection:
            return await _read(connection, ProducerKey(self._agent, caller, name))


@contextmanager
def _in_use_reported() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise ProducerInUse(
            "requests of this producer are being published; ask again in a moment"
        ) from error


async def _read(connection: AsyncConnection, key: ProducerKey) -> Producer:
    async with connection.cursor(row_factory=class_row(Producer)) as cursor:
        await cursor.execute(
            """
            WITH unconfirmed AS MATERIALIZED (
                SELECT min(producer_sequence) AS first FROM bookkeeping.outbox
                WHERE log_offset IS NULL AND producer_name = %(qualified)s
            )
            SELECT name, epoch, last_sequence, registered_at, used_at,
                CASE WHEN unconfirmed.first IS NULL THEN last_sequence
                ELSE coalesce((SELECT max(producer_sequence) FROM bookkeeping.outbox
                    WHERE producer_name = %(qualified)s AND producer_sequence < unconfirmed.first),
                    %(nothing)s) END AS last_persisted
            FROM bookkeeping.producer, unconfirmed
            WHERE (agent, caller, name) = (%(agent)s, %(caller)s, %(name)s)
            """,
            {"qualified": key.qualified, "nothing": NOTHING, **key._asdict()},
        )
        found = await cursor.fetchone()
    if found is None:
        raise UnknownProducer(
            f"you have no producer {key.name!r} here, or it has expired; PUT /producers/{key.name} "
            "registers it, and so does a replay: `packhorse distribute --from-file`"
        )
    return found
