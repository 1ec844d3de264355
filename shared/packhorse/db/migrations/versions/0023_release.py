"""Releases: distributions that go out at a moment, or when somebody says so.

docs/adr/0094-releases.md says why. A row ends in the transaction that writes its package.
"""

from alembic import op

revision = "0023"
down_revision = "0022"

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE bookkeeping.release (
        release_id text PRIMARY KEY,
        agent text NOT NULL,
        name text NOT NULL DEFAULT '',
        version integer NOT NULL DEFAULT 1,
        state text NOT NULL
            CHECK (state IN ('DRAFT', 'SCHEDULED', 'SENT', 'FAILED', 'CANCELLED')),
        fires_at timestamp with time zone,
        job bigint,
        caller text NOT NULL,
        roots text[] NOT NULL,
        action text NOT NULL,
        paths text[] NOT NULL,
        deep_paths text[] NOT NULL,
        traceparent text NOT NULL DEFAULT '',
        package_id text NOT NULL DEFAULT '',
        reason text NOT NULL DEFAULT '',
        created_at timestamp with time zone NOT NULL DEFAULT now(),
        changed_at timestamp with time zone NOT NULL DEFAULT now(),
        CHECK (state <> 'SCHEDULED' OR fires_at IS NOT NULL)
    )
    """,
    "CREATE INDEX release_moment ON bookkeeping.release (agent, fires_at, release_id)",
    "CREATE INDEX release_ended ON bookkeeping.release (changed_at)"
    " WHERE state IN ('SENT', 'FAILED', 'CANCELLED')",
    "CREATE UNIQUE INDEX release_name ON bookkeeping.release (agent, name)"
    " WHERE name <> '' AND state IN ('DRAFT', 'SCHEDULED', 'FAILED')",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.release TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
