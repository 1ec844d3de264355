"""Table of the publisher: how an agent's queues were, minute by minute."""

from alembic import op

revision = "0027"
down_revision = "0026"

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE bookkeeping.queue_sample (
        agent text,
        sampled_at timestamptz,
        subscribers text[] NOT NULL,
        lags real[] NOT NULL,
        lengths bigint[] NOT NULL,
        rates real[] NOT NULL,
        PRIMARY KEY (agent, sampled_at)
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.queue_sample TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
