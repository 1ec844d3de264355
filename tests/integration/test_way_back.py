"""What the upgrade chapter says of the way back to the release before."""

import re

import psycopg

from tests.harness.deployment import ROOT
from tests.harness.postgres import Databases

_KNOWN_BEFORE = {"IMPORTED", "REMOVED", "REMOVED_FAILED", "SKIPPED"}
_KINDS_BEFORE = {"CLEAR", "RESUME", "PAUSE", "STOP", "RESET"}

_ROWS = """
    INSERT INTO bookkeeping.status (publisher_agent, log_offset, subscriber, package_id, status,
        attempts, reason, command_id, journal_id)
    SELECT 'main', row_number() OVER (), 'sub', 'p', became, 0, '', '', 'j'
    FROM unnest(ARRAY['IMPORTED', 'DUPLICATE', 'REMOVED']) AS became;
    INSERT INTO bookkeeping.outcome (agent, subscriber, journal_id, log_offset, package_id, status,
        attempts, reason, command_id, decided_at)
    SELECT 'main', 'sub', 'j', row_number() OVER (), 'p', became, 0, '', '', now()
    FROM unnest(ARRAY['IMPORTED', 'DUPLICATE', 'REMOVED']) AS became;
    INSERT INTO bookkeeping.command (command_id, agent, subscriber, kind, journal_id, issued_by,
        state)
    SELECT kind, 'main', 'sub', kind, 'j', 'me', 'ISSUED'
    FROM unnest(ARRAY['RETRY', 'CLEAR']) AS kind;
"""


def test_the_release_before_knows_all_that_is_left(databases: Databases) -> None:
    page = (ROOT / "docs/operations/upgrade.md").read_text()
    (statements,) = re.findall(r"```sql\n(.*?)```", page, re.S)
    with psycopg.connect(databases.new("back"), autocommit=True) as database:
        database.execute(_ROWS)
        database.execute(statements.encode())
        for table in ("status", "outcome"):
            rows = database.execute(f"SELECT status FROM bookkeeping.{table}".encode()).fetchall()
            assert len(rows) == 3
            assert {status for (status,) in rows} <= _KNOWN_BEFORE
        kinds = database.execute("SELECT kind FROM bookkeeping.command").fetchall()
        assert kinds == [("CLEAR",)]
        assert {kind for (kind,) in kinds} <= _KINDS_BEFORE
