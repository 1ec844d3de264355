"""The subscriber's filter: where it places paths, and the properties that it leaves out."""

from alembic import op

revision = "0028"
down_revision = "0027"

STATEMENTS: tuple[str, ...] = (
    "ALTER TABLE bookkeeping.content_filter "
    "ADD COLUMN map_paths jsonb NOT NULL DEFAULT '{}', "
    "ADD COLUMN exclude_properties text[] NOT NULL DEFAULT '{}'",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
