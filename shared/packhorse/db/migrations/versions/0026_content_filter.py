"""Table of the subscriber: which paths it takes and which it leaves out."""

from alembic import op

revision = "0026"
down_revision = "0025"

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE bookkeeping.content_filter (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        include text[] NOT NULL,
        exclude text[] NOT NULL,
        since timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.content_filter TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
