"""Content watches of some types of nodes; without a type a watch is as it was.

docs/adr/0087-types-of-watches.md says why.
"""

from alembic import op

revision = "0025"
down_revision = "0024"

STATEMENTS: tuple[str, ...] = (
    """
    ALTER TABLE jobs.content_watch ADD COLUMN types text[] COLLATE "C" NOT NULL DEFAULT '{}'
        CHECK (cardinality(types) <= 100)
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
