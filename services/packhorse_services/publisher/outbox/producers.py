"""Producers: replayable sources that number their requests, so that none is published twice.

A producer is a caller's, of one publisher agent. Its row says which epoch may publish and the
highest sequence that is committed; that moves in the transaction of the outbox row and under the
append lock. `packhorse.messaging.deduplication` decides what is a duplicate.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from psycopg import Connection

from packhorse.errors import Permanent, Transient
from packhorse.messaging.deduplication import (
    Deduplication,
    DeduplicationState,
    DeduplicationVerdict,
    ProducerExpired,
    ProducerFenced,
    ProducerState,
)
from packhorse.messaging.numbered import LARGEST, MAX_NAME, Number

logger = logging.getLogger(__name__)

_LAST_EPOCH = LARGEST // 2
"""The last that is taken from the journal; above it new ones can be given for ever."""


class SequencePassed(Permanent):
    """The sequence is not above the last one, and of its package nothing is known here."""


class EarlierRefused(Transient):
    """A request that the same producer sent before this one was refused, so this one was too."""


class ProducerKey(NamedTuple):
    """Whose producer it is."""

    agent: str
    caller: str
    name: str

    @property
    def qualified(self) -> str:
        """The name that is unique in a journal; neither agents nor names hold a slash."""
        return f"{self.agent}/{self.name}/{self.caller}"

    @classmethod
    def of(cls, qualified: str) -> Self:
        """Return the key of a qualified name. Raises `ValueError` for what is none."""
        agent, name, caller = qualified.split("/", 2)
        return cls(agent, caller, name)


def is_qualified(name: str) -> bool:
    """Return whether a name that the journal holds can be one of a producer (R30)."""
    return name.count("/") >= 2 and len(name) <= MAX_NAME


@dataclass(frozen=True, slots=True)
class Judge:
    """What is known of the producers of one group of requests, and what it makes of each."""

    rows: Mapping[str, "_Row"]
    state: Deduplication
    packages: Mapping[tuple[str, int], tuple[str, int | None]]
    verified: bool
    """Whether the journal was asked for sequences that a restored database does not know."""

    def verdict(self, number: Number) -> DeduplicationVerdict:
        """Judge one request; those that are no duplicates count as sent from now on.

        Raises `ProducerFenced`, or `ProducerExpired` for an epoch that nobody has.
        """
        row = self.rows.get(number.producer)
        if row is None or number.epoch > row.epoch:
            raise ProducerExpired(
                f"epoch {number.epoch} of this producer is not known here, or no longer; register "
                f"with PUT /producers/{ProducerKey.of(number.producer).name}, and go on behind the "
                "last_sequence that it answers"
            )
        if number.epoch < row.epoch:
            raise ProducerFenced(
                f"this producer was registered anew since: its epoch is {row.epoch}, and "
                f"{number.epoch} is refused; let the other one publish, or register again with "
                f"PUT /producers/{ProducerKey.of(number.producer).name}"
            )
        verdict = self.state.verdict(number.producer, number.sequence, number.epoch)
        if verdict is DeduplicationVerdict.NOT_DUP:
            return self._pushed(number) if self.verified else DeduplicationVerdict.UNKNOWN
        return verdict

    def _pushed(self, number: Number) -> DeduplicationVerdict:
        return self.state.check(number.producer, number.sequence, number.epoch)

    def package_of(self, number: Number) -> tuple[str, int | None] | None:
        """Return id and offset of the package that a sequence has led to, if it is known."""
        return self.packages.get((number.producer, number.sequence))


class _Row(NamedTuple):
    qualified: str
    epoch: int
    last_sequence: int
    persisted: int
    """Every sequence up to this one that was published is in the journal."""


def judge(
    connection: Connection, agent: str, numbers: Collection[Number], *, verified: bool
) -> Judge:
    """Read the producers of `numbers`, and keep others from registering them until the commit."""
    rows = {row.qualified: row for row in _rows(connection, agent, numbers)} if numbers else {}
    state = Deduplication(len(rows))
    certain = {name: ProducerState(row.epoch, row.persisted, 0) for name, row in rows.items()}
    state.restore(DeduplicationState(certain))
    for name, row in rows.items():
        state.check(name, row.last_sequence, row.epoch)
    repeated = [
        number
        for number in numbers
        if (known := rows.get(number.producer)) and number.sequence <= known.last_sequence
    ]
    return Judge(rows, state, _packages(connection, repeated), verified)


def _rows(connection: Connection, agent: str, numbers: Collection[Number]) -> list[_Row]:
    names = sorted({number.producer for number in numbers})
    keys = [ProducerKey.of(name) for name in names]
    return [
        _Row(*row)
        for row in connection.execute(
            """
            WITH unconfirmed AS MATERIALIZED (
                SELECT producer_name, min(producer_sequence) AS first FROM bookkeeping.outbox
                WHERE log_offset IS NULL AND producer_name IS NOT NULL GROUP BY producer_name
            )
            SELECT qualified, epoch, last_sequence, coalesce(
                (SELECT first - 1 FROM unconfirmed WHERE producer_name = qualified), last_sequence)
            FROM unnest(%s::text[], %s::text[], %s::text[]) AS wanted (caller, name, qualified)
            JOIN bookkeeping.producer AS producer ON producer.agent = %s
                AND producer.caller = wanted.caller AND producer.name = wanted.name
            FOR NO KEY UPDATE OF producer
            """,
            ([key.caller for key in keys], [key.name for key in keys], names, agent),
        )
    ]


def _packages(
    connection: Connection, numbers: Sequence[Number]
) -> dict[tuple[str, int], tuple[str, int | None]]:
    if not numbers:
        return {}
    rows = connection.execute(
        """
        SELECT producer_name, producer_sequence, package_id, log_offset
        FROM unnest(%s::text[], %s::bigint[]) AS wanted (name, number)
        JOIN bookkeeping.outbox ON producer_name = name AND producer_sequence = number
        """,
        ([number.producer for number in numbers], [number.sequence for number in numbers]),
    ).fetchall()
    return {(name, sequence): (package_id, offset) for name, sequence, package_id, offset in rows}


def advance(connection: Connection, numbers: Sequence[Number]) -> None:
    """Note the sequences that are committed with this transaction."""
    connection.execute(
        """
        UPDATE bookkeeping.producer AS producer
        SET last_sequence = made.last_sequence, used_at = clock_timestamp()
        FROM (SELECT agent, caller, name, max(sequence) AS last_sequence
            FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[])
                AS numbers (agent, caller, name, sequence)
            GROUP BY agent, caller, name) AS made
        WHERE (producer.agent, producer.caller, producer.name)
            = (made.agent, made.caller, made.name)
        """,
        (*_keys(numbers), [number.sequence for number in numbers]),
    )


def catch_up(connection: Connection, numbers: Sequence[Number], limit: int) -> None:
    """Note what the journal holds and the database may not know, as after a restored backup.

    Takes one number of each producer, the one that published last at the end. Their epochs are
    not given again. Of those that are not known, no more are added than an agent may have
    (`limit`), the last ones first. Epochs that leave no room for new ones are ignored (R30).
    """
    possible = [number for number in numbers if number.epoch <= _LAST_EPOCH]
    if len(possible) < len(numbers):
        logger.warning(
            "the journal names producers with epochs that nobody has given",
            extra={"producers": len(numbers) - len(possible)},
        )
    if not possible:
        return
    columns = (
        *_keys(possible),
        [number.epoch for number in possible],
        [number.sequence for number in possible],
    )
    connection.execute(CATCH_UP, (*columns, limit))
    connection.execute(
        "SELECT setval('bookkeeping.producer_epoch', %b) "
        "FROM bookkeeping.producer_epoch WHERE last_value < %b",
        (max(number.epoch for number in possible),) * 2,
    )


CATCH_UP = """
    WITH found AS (
        SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[])
            WITH ORDINALITY AS found (agent, caller, name, epoch, last_sequence, place)
    ), ranked AS (
        SELECT found.*, row_number() OVER (PARTITION BY agent ORDER BY place DESC) AS rank
        FROM found LEFT JOIN bookkeeping.producer AS known USING (agent, caller, name)
        WHERE known.agent IS NULL
    ), added AS (
        INSERT INTO bookkeeping.producer (agent, caller, name, epoch, last_sequence)
        SELECT agent, caller, name, epoch, last_sequence FROM ranked
        WHERE rank <= %b - (SELECT count(*) FROM bookkeeping.producer AS known
            WHERE known.agent = ranked.agent)
        ON CONFLICT (agent, caller, name) DO NOTHING
    )
    UPDATE bookkeeping.producer AS producer
    SET epoch = greatest(producer.epoch, found.epoch),
        last_sequence = greatest(producer.last_sequence, found.last_sequence)
    FROM found
    WHERE (producer.agent, producer.caller, producer.name)
            = (found.agent, found.caller, found.name)
        AND (producer.epoch < found.epoch OR producer.last_sequence < found.last_sequence)
"""


def _keys(numbers: Sequence[Number]) -> tuple[list[str], list[str], list[str]]:
    keys = [ProducerKey.of(number.producer) for number in numbers]
    return [key.agent for key in keys], [key.caller for key in keys], [key.name for key in keys]


def forget(
    connection: Connection, agent: str, older_than_s: float, abandoned_s: float, limit: int
) -> int:
    """Remove up to `limit` producers of an agent unused for that long, by the database's clock.

    Returns how many; also others' that are unused for `abandoned_s`, which is longer (R28).
    """
    return connection.execute(
        """
        DELETE FROM bookkeeping.producer WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM bookkeeping.producer
            WHERE used_at < clock_timestamp() - make_interval(secs => %s)
                AND (agent = %s OR used_at < clock_timestamp() - make_interval(secs => %s))
            LIMIT %s FOR UPDATE SKIP LOCKED))
        """,
        (older_than_s, agent, abandoned_s, limit),
    ).rowcount
