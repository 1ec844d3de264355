"""Changes of who is active, in a transaction that holds the cluster's row."""

import logging
import uuid
from collections.abc import Sequence

import psycopg
from psycopg import Connection

from packhorse.db.run_sessions import end_sessions
from packhorse.topology.leader import revoke
from packhorse.topology.lease.store import Incarnation, Renewal
from packhorse.topology.properties import DEFAULT_PREFIX
from packhorse.topology.store_session import CHANNEL

logger = logging.getLogger(__name__)

_PATIENCE = "100ms"
_REMEMBERED = "7 days"
_MOST_REMEMBERED = 500


def lock_cluster(connection: Connection) -> bool:
    """Let nobody else change the membership until the transaction ends; false without a cluster."""
    cursor = connection.execute("SELECT FROM topology.cluster FOR UPDATE")
    return cursor.fetchone() is not None


def found_cluster(connection: Connection) -> None:
    """Do the same; the first to join makes the cluster, with an id that it keeps."""
    if not lock_cluster(connection):
        connection.execute(
            "INSERT INTO topology.cluster AS c (id) VALUES (%s) "
            "ON CONFLICT (singleton) DO UPDATE SET id = c.id",
            (str(uuid.uuid4()),),
        )


def try_lock_cluster(connection: Connection) -> bool:
    """Do the same, or return False when another one changes it right now."""
    cursor = connection.execute("SELECT FROM topology.cluster FOR UPDATE SKIP LOCKED")
    return cursor.fetchone() is not None


def next_seq(connection: Connection) -> None:
    """Raise `seq`, and wake all waiting instances at the commit."""
    connection.execute(
        "UPDATE topology.cluster SET seq = seq + 1 RETURNING pg_notify(%s, '')", (CHANNEL,)
    )


def cut_leases(connection: Connection) -> None:
    """Let no lease end later than it can: they do when the clock was set back."""
    connection.execute(
        """
        UPDATE topology.instance SET lease_end = clock_timestamp() + make_interval(secs => lease_s)
        WHERE state = 'ACTIVE' AND lease_end > clock_timestamp() + make_interval(secs => lease_s)
        """
    )


def retire_expired(connection: Connection, judge: Incarnation) -> list[int]:
    """Make all others deactivating whose lease has run out; return their places in the order."""
    rows = connection.execute(
        """
        UPDATE topology.instance SET state = 'DEACTIVATING', changed_at = clock_timestamp()
        WHERE state = 'ACTIVE' AND lease_end <= clock_timestamp() AND id <> %s RETURNING joined
        """,
        (judge.instance_id,),
    ).fetchall()
    return [joined for (joined,) in rows]


def deactivate(connection: Connection, who: Incarnation) -> list[int]:
    """Make one deactivating; return its place in the order, nothing unless it is active."""
    rows = connection.execute(
        """
        UPDATE topology.instance SET state = 'DEACTIVATING', changed_at = clock_timestamp()
        WHERE state = 'ACTIVE' AND id = %s AND runtime_id = %s RETURNING joined
        """,
        (who.instance_id, who.runtime_id),
    ).fetchall()
    return [joined for (joined,) in rows]


_ELECT = """
    WITH active AS (
        SELECT id, joined, lease_end > clock_timestamp() AS lives,
            row_number() OVER (ORDER BY joined) AS place,
            coalesce(properties ->> 'packhorse.leader-prefix', %(default)s) COLLATE "C" AS prefix
        FROM topology.instance WHERE state = 'ACTIVE'),
    chosen AS (
        SELECT id, joined, place FROM active
        WHERE lives AND prefix < (SELECT prefix FROM active WHERE place = 1)
        ORDER BY prefix, joined LIMIT 1),
    moved AS (
        SELECT active.id, CASE active.id WHEN chosen.id THEN 1 ELSE active.place + 1 END AS place
        FROM active JOIN chosen ON active.place <= chosen.place
        WHERE %(gone)s < (SELECT min(joined) FROM active) AND NOT EXISTS (
            SELECT FROM topology.instance WHERE state = 'DEACTIVATING'
            AND joined BETWEEN (SELECT min(joined) FROM active) AND chosen.joined))
    UPDATE topology.instance AS i SET joined = active.joined
    FROM moved JOIN active USING (place) WHERE i.id = moved.id AND i.joined <> active.joined
"""


def elect(connection: Connection, gone: Sequence[int]) -> None:
    """Let a live one with a lower prefix than the next come first, if the leader is in `gone`.

    `gone` are places. All others keep their order, so that everybody stays or moves up (ADR 0065).
    Nobody overtakes an instance that is deactivating, whose turn it still is, nor one that takes a
    leader task now.
    """
    if not gone:
        return
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (_PATIENCE,))
            parameters = {"gone": min(gone), "default": DEFAULT_PREFIX}
            connection.execute(_ELECT, parameters)
    except psycopg.errors.LockNotAvailable:
        logger.info(
            "the next in the order leads, preferred or not: the place of an instance is locked"
        )


def deactivate_all(connection: Connection) -> bool:
    """End the work of all deactivating instances and make them inactive; true if it did one."""
    rows = connection.execute(
        "SELECT id, runtime_id FROM topology.instance WHERE state = 'DEACTIVATING' ORDER BY joined"
    ).fetchall()
    gone = [Incarnation(*row) for row in rows]
    end_sessions(connection, [who.runtime_id for who in gone])
    settled = [complete_deactivation(connection, who) for who in gone]
    return any(settled)


def complete_deactivation(connection: Connection, who: Incarnation) -> bool:
    """Make a deactivating instance inactive, and take its leader tasks from it.

    Whichever process sees the end first does it. False while a transaction holds one of the tasks,
    for which it waits a moment (`LockNotAvailable`): then nothing has changed, and it is tried
    again later.
    """
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (_PATIENCE,))
            revoke(connection, who.runtime_id)
            connection.execute(
                """
                UPDATE topology.instance SET state = 'INACTIVE', properties = '{}',
                    changed_at = clock_timestamp()
                WHERE state = 'DEACTIVATING' AND id = %s AND runtime_id = %s
                """,
                (who.instance_id, who.runtime_id),
            )
    except psycopg.errors.LockNotAvailable:
        logger.info(
            "an instance that left stays deactivating for now: its leader tasks are locked",
            extra={"instance": who.instance_id},
        )
        return False
    return True


def forget(connection: Connection) -> None:
    """Remove instances that have been inactive for a week, and all but the latest of them."""
    connection.execute(
        """
        DELETE FROM topology.instance WHERE state = 'INACTIVE' AND (
            changed_at < clock_timestamp() - %s::interval
            OR id IN (SELECT id FROM topology.instance WHERE state = 'INACTIVE'
                      ORDER BY changed_at DESC, id OFFSET %s))
        """,
        (_REMEMBERED, _MOST_REMEMBERED),
    )


def enter(connection: Connection, renewal: Renewal, properties: str) -> None:
    """Write the row of a newcomer, whose place is `seq`; it keeps the number that it had."""
    connection.execute(
        """
        WITH numbered AS (
            UPDATE topology.cluster SET last_number = last_number + 1
            WHERE NOT EXISTS (SELECT FROM topology.instance WHERE id = %(id)s)
            RETURNING last_number)
        INSERT INTO topology.instance AS i
            (id, runtime_id, number, joined, state, lease_end, lease_s, properties)
        SELECT %(id)s, %(runtime_id)s,
            coalesce((SELECT last_number FROM numbered),
                     (SELECT number FROM topology.instance WHERE id = %(id)s)),
            (SELECT seq FROM topology.cluster), 'ACTIVE',
            clock_timestamp() + make_interval(secs => %(lease_s)s),
            %(lease_s)s, %(properties)s::jsonb
        ON CONFLICT (id) DO UPDATE SET runtime_id = excluded.runtime_id, joined = excluded.joined,
            state = excluded.state, lease_end = excluded.lease_end, lease_s = excluded.lease_s,
            acknowledged = 0, edition = i.edition + 1, properties = excluded.properties,
            changed_at = clock_timestamp()
        """,
        {
            "id": renewal.who.instance_id,
            "runtime_id": renewal.who.runtime_id,
            "lease_s": renewal.lease_s,
            "properties": properties,
        },
    )
