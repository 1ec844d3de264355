"""Who watches content.

docs/adr/0080-content-events.md says why. The importer's role reads it, which the content service
and the import act as when they ask whether somebody watches.
"""

from alembic import op

revision = "0022"
down_revision = "0020"

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE jobs.content_watch (
        name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
        roots text[] COLLATE "C" NOT NULL CHECK (cardinality(roots) BETWEEN 1 AND 100),
        job_topic text COLLATE "C" CHECK (octet_length(job_topic) BETWEEN 1 AND 255)
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.content_watch TO packhorse_bookkeeper",
    "GRANT USAGE ON SCHEMA jobs TO packhorse_importer",
    "GRANT SELECT ON jobs.content_watch TO packhorse_importer",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
