"""Schemas, and the three roles of R23; roles belong to the server, so they may exist already.

A database is its owner's: a login that was granted the roles for its own database could else use
them in each database that it can enter.
"""

from alembic import op

revision = "0001"
down_revision = None

ROLES = ("packhorse_exporter", "packhorse_importer", "packhorse_bookkeeper")


def upgrade() -> None:
    for role in ROLES:
        op.execute(
            f"DO $$ BEGIN IF to_regrole('{role}') IS NULL THEN CREATE ROLE {role} NOLOGIN; END IF; "
            "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        )
        op.execute(
            f"DO $$ BEGIN IF NOT pg_has_role(current_user, '{role}', 'SET') "
            f"THEN GRANT {role} TO current_user; END IF; END $$"
        )
    op.execute("CREATE SCHEMA content")
    op.execute("CREATE SCHEMA bookkeeping")
    op.execute("CREATE SCHEMA journal")
    op.execute(f"GRANT USAGE ON SCHEMA content TO {', '.join(ROLES)}")
    op.execute("GRANT USAGE ON SCHEMA bookkeeping TO packhorse_bookkeeper")
    op.execute(
        "DO $$ BEGIN EXECUTE format("
        "'REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()"
        "); END $$"
    )
