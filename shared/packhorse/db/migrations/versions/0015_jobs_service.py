"""What the jobs service knows of requests that were sent twice."""

from alembic import op

revision = "0015"
down_revision = "0014"

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE jobs.request_key (
        caller text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        fingerprint bytea NOT NULL,
        number bigint,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (caller, key)
    )
    """,
    "CREATE INDEX request_key_age ON jobs.request_key (created_at)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.request_key TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
