"""What logins other than the owner of the journal's tables may do: read all, append to some topics.

`journal.appender` says who appends to what, for the policy on the counters and for new segments;
the rights on tables are PostgreSQL's own.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from packhorse.errors import Permanent
from packhorse.messaging.sql.catalogue import find_topic
from packhorse.messaging.sql.segments import SqlSegment

_READ = ("identity", "topic", "partition", "segment", "appender", "record")


class NotGranted(Permanent):
    """The rights can't be given like this; nothing was changed."""


def grant(connection: psycopg.Connection, role: str, topics: Sequence[str]) -> None:
    """Let `role` read the journal and append to these topics; what else it had there is revoked.

    Appends wait meanwhile, so that no segment is begun without the rights. Raises `NotGranted`,
    and `TopicMissing`.
    """
    with connection.transaction():
        _check(connection, role)
        ids = [find_topic(connection, name).id for name in topics]
        segments = _hold_segments(connection, ids)
        name = sql.Identifier(role)
        for statement in (*_REVOKE, *_GRANT_READ):
            connection.execute(sql.SQL(statement).format(role=name))
        _grant_on(connection, "SELECT", [table for table, _ in segments], name)
        connection.execute("DELETE FROM journal.appender WHERE role = %s", (role,))
        if not ids:
            return
        connection.execute(
            "INSERT INTO journal.appender (topic_id, role) SELECT unnest(%s::bigint[]), %s",
            (ids, role),
        )
        for statement in _GRANT_APPEND:
            connection.execute(sql.SQL(statement).format(role=name))
        _grant_on(connection, "INSERT", [table for table, appends in segments if appends], name)


def _check(connection: psycopg.Connection, role: str) -> None:
    row: Any = connection.execute(_OWNER).fetchone()
    if row is None:
        raise NotGranted(
            "the journal's database has no tables of packhorse, or not yet those of this release; "
            "run `packhorse topics create` first"
        )
    owner, is_ours = row
    if not is_ours:
        raise NotGranted(f"the journal's tables belong to {owner}: give --journal with that login")
    row = connection.execute(_ROLE, (owner, role)).fetchone()
    if row is None:
        raise NotGranted(f"there is no role {role}; make it first: CREATE ROLE … LOGIN PASSWORD …")
    if row[0]:
        raise NotGranted(
            f"{role} is, or can become, {owner}, to whom the journal's tables belong, and may do "
            "everything; name a login of its own"
        )
    _let_in(connection, role)


def _let_in(connection: psycopg.Connection, role: str) -> None:
    """Grant CONNECT, which is the database owner's to give, unless the role has it."""
    requested = "SELECT has_database_privilege(%s, current_database(), 'CONNECT')"
    row: Any = connection.execute(requested, (role,)).fetchone()
    if row[0]:
        return
    database, name = sql.Identifier(connection.info.dbname), sql.Identifier(role)
    command = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, name)
    connection.execute(command)  # only warns where it is not ours to give
    row = connection.execute(requested, (role,)).fetchone()
    if not row[0]:
        raise NotGranted(
            f"{role} may not enter the database; run {command.as_string(connection)} as the "
            "database's owner first"
        )


def _hold_segments(
    connection: psycopg.Connection, topic_ids: Sequence[int]
) -> list[tuple[sql.Identifier, bool]]:
    """Keep segments from coming and going to the end; return which belong to one of the topics."""
    connection.execute("SELECT FROM journal.partition ORDER BY id FOR UPDATE")
    rows = connection.execute(_SEGMENTS, (list(topic_ids),)).fetchall()
    return [(SqlSegment(partition, start).table, appends) for partition, start, appends in rows]


def _grant_on(
    connection: psycopg.Connection,
    right: str,
    tables: Sequence[sql.Identifier],
    role: sql.Identifier,
) -> None:
    if tables:
        listed = sql.SQL(", ").join(tables)
        connection.execute(sql.SQL(f"GRANT {right} ON {{}} TO {{}}").format(listed, role))


_OWNER = """
    SELECT tableowner, pg_has_role(current_user, tableowner, 'USAGE')
    FROM pg_tables WHERE schemaname = 'journal' AND tablename = 'appender'
"""
_ROLE = "SELECT pg_has_role(oid, %s, 'MEMBER') FROM pg_roles WHERE rolname = %s"
_SEGMENTS = """
    SELECT s.partition_id, s.first_offset, p.topic_id = ANY(%s)
    FROM journal.segment s JOIN journal.partition p ON p.id = s.partition_id FOR SHARE OF s
"""
_REVOKE = (
    "REVOKE ALL ON ALL TABLES IN SCHEMA journal FROM {role}",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA journal FROM {role}",
    "REVOKE ALL ON SCHEMA journal FROM {role}",
)
_GRANT_READ = (
    "GRANT USAGE ON SCHEMA journal TO {role}",
    f"GRANT SELECT ON {', '.join(f'journal.{table}' for table in _READ)} TO {{role}}",
)
_GRANT_APPEND = (
    "GRANT UPDATE (next, segment_bytes, last_ms) ON journal.partition TO {role}",
    "GRANT EXECUTE ON FUNCTION journal.may_append, journal.begin_segment TO {role}",
)
