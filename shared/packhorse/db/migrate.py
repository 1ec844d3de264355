"""Bring a database to the newest schema; every program does it at start."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text

_LOCK = 0x7061636B  # "pack": two programs that start at once must not both migrate


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Migrate to `revision`; a database that is there already is left untouched."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        command.upgrade(_config(connection), revision)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "packhorse.db:migrations")
    config.attributes["connection"] = connection
    return config
