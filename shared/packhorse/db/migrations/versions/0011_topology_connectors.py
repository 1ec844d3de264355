"""Tables of the connectors between clusters."""

from alembic import op

revision = "0011"
down_revision = "0010"

STATEMENTS = (
    """
    CREATE TABLE topology.announcement (
        owner text COLLATE "C" NOT NULL,
        holder text COLLATE "C" NOT NULL,
        address text NOT NULL,
        content text NOT NULL,
        digest text NOT NULL,
        backoff_interval_s double precision NOT NULL,
        received_at timestamptz NOT NULL,
        changed_at timestamptz NOT NULL,
        expires_at timestamptz NOT NULL,
        PRIMARY KEY (owner, holder)
    )
    """,
    """
    CREATE TABLE topology.nonce (
        nonce text COLLATE "C" PRIMARY KEY,
        expires_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX nonce_expiry ON topology.nonce (expires_at)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON topology.announcement, topology.nonce "
    "TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
