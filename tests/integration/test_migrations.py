"""The schema that migrations make."""

from sqlalchemy import text

from packhorse.db.engine import open_engine
from packhorse.db.migrate import upgrade


def test_a_migrated_database_stays_as_it_is(database_url: str) -> None:
    engine = open_engine(database_url, "tests")
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM alembic_version")) == 1
    engine.dispose()
