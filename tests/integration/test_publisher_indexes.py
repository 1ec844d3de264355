"""What the publisher asks every few seconds is found by an index, however long its tables (R30)."""

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse_services.publisher.commands import command_rows as commands
from packhorse_services.publisher.outcomes import outcome_rows
from tests.harness.publishing import AGENT

HOUR = 3600.0


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """Tables with some thousand rows, few of them wanted; nothing of it is committed."""
    with connect(database_url, "tests") as connection:
        connection.execute(
            """
            INSERT INTO bookkeeping.outcome (agent, subscriber, journal_id, log_offset, package_id,
                status, attempts, reason, command_id, decided_at)
            SELECT %s, 'sub' || n %% 5, 'log', n, 'package', CASE n %% 100
                WHEN 0 THEN 'REMOVED_FAILED' ELSE 'SKIPPED' END, 1, 'no', '', now()
            FROM generate_series(1, 20000) AS n
            """,
            (AGENT,),
        )
        connection.execute(
            """
            INSERT INTO bookkeeping.command (command_id, agent, subscriber, kind, journal_id,
                issued_by, state)
            SELECT 'command ' || n, %s, 'sub1', 'PAUSE', 'log', 'admin', 'APPLIED'
            FROM generate_series(1, 20000) AS n
            """,
            (AGENT,),
        )
        connection.execute("ANALYZE bookkeeping.outcome, bookkeeping.command")
        yield connection
        connection.rollback()


def scans(connection: Connection) -> tuple[int, int]:
    """Return how often this transaction went through a whole table, and through an index."""
    row = connection.execute(
        "SELECT sum(seq_scan)::int, sum(idx_scan)::int FROM pg_stat_xact_user_tables "
        "WHERE schemaname = 'bookkeeping' AND relname IN ('outcome', 'command')"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_r30_no_periodic_query_goes_through_a_whole_table(connection: Connection) -> None:
    whole, by_index = scans(connection)
    assert commands.next_unsent(connection, AGENT) is None
    assert sum(outcome_rows.failed_counts(connection, AGENT).values()) == 200
    limits: Any = {"failed_s": HOUR, "limit": 1_000}
    others = outcome_rows.forget_of_other_logs(connection, AGENT, "log", others_s=HOUR, **limits)
    assert others == 0
    assert outcome_rows.forget(connection, AGENT, "log", 0, **limits) == 0
    after = scans(connection)
    assert after[0] == whole
    assert after[1] >= by_index + 4
