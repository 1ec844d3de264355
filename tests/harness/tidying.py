"""The housekeeping of a publisher, done once."""

from pydantic import SecretStr

from packhorse_services.publisher.assembly.housekeeping import Housekeeping
from packhorse_services.publisher.settings import Settings
from tests.harness.borrowing import pooled
from tests.harness.publishing import AGENT, Author


def tidy(author: Author, *, agent: str = AGENT, **settings: float) -> None:
    """Let a publisher with these settings forget what is old."""
    given = Settings(
        database_url=SecretStr(author.database_url),
        agent=agent,
        authentication=False,
        topic_package=author.topics.package,
        **settings,
    )
    with pooled(author.database_url, "tests") as pool:
        Housekeeping(pool, author.journal, given).tidy()
