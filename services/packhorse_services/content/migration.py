"""The author's schema, brought up to date before anything else happens."""

from packhorse.db.engine import open_engine
from packhorse.db.migrate import upgrade
from packhorse_services.content.settings import Settings


def migrate(settings: Settings) -> None:
    """Bring the author's database to the newest schema."""
    engine = open_engine(settings.database_url.get_secret_value(), "packhorse-content")
    upgrade(engine)
    engine.dispose()
