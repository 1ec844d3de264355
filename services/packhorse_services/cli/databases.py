"""The databases of a stack, copied from one that has the newest schema: none takes long to make."""

from collections.abc import Sequence

from sqlalchemy.exc import OperationalError

from packhorse.db.engine import open_engine
from packhorse.db.migrate import upgrade
from packhorse.errors import Transient
from packhorse_services.cli.embedded import EmbeddedPostgres

_TEMPLATE = "packhorse_template"


class DatabaseAway(Transient):
    """A database can't be reached now; the text has its own words."""


def ensure_databases(postgres: EmbeddedPostgres, names: Sequence[str]) -> dict[str, str]:
    """Create those that are missing, and return the URL of each.

    One that is there keeps its schema; the programs that use it migrate it when they start.
    """
    missing = set(names) - postgres.databases()
    if missing:
        migrate(postgres.ensure_database(_TEMPLATE))
    for name in sorted(missing):
        postgres.ensure_database(name, template=_TEMPLATE)
    return {name: postgres.url(name) for name in names}


def migrate(url: str) -> None:
    """Bring a database to the newest schema. Raises `DatabaseAway`."""
    engine = open_engine(url, "packhorse-cli")
    try:
        upgrade(engine)
    except OperationalError as error:
        said = str(error.orig).split("\n", 1)[0]
        raise DatabaseAway(f"the database says: {said}") from error
    finally:
        engine.dispose()
