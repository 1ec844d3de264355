"""Creates the journal's topics, and checks those that somebody else made."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from packhorse.errors import Permanent
from packhorse.messaging.api import Journal
from packhorse.messaging.open import UnknownJournal, grant_role, open_journal
from packhorse.messaging.topics import appended_by, retention_faults, standard_topics
from packhorse.wire.topics import PACKAGE_RETENTION_HOURS, Topics
from packhorse_services.cli.client.failures import CommandFailed, Exit

_CLIENT = "packhorse-cli"


def create(journal_url: str, topics: Topics, hours: float = PACKAGE_RETENTION_HOURS) -> list[str]:
    """Create the topics that are missing and return what is wrong with any, as `check` does.

    A journal in PostgreSQL gets its tables first.
    """
    with opened(journal_url) as journal:
        if journal_url.startswith(("postgresql://", "postgres://")):
            from packhorse.db.prepare import prepare_database  # slow to import, rarely needed

            prepare_database(journal_url, "packhorse-cli", setting="the journal's URL")
        journal.create_topics(standard_topics(topics, kept_hours=hours))
    return check(journal_url, topics, hours)


def check(journal_url: str, topics: Topics, hours: float = PACKAGE_RETENTION_HOURS) -> list[str]:
    """Return one sentence for each thing that is wrong, and how to mend it.

    Packages are to be kept for `hours` at least, and nothing that speaks of them for less time.
    """
    wanted = standard_topics(topics, kept_hours=hours)
    with opened(journal_url) as journal:
        return journal.check_topics(wanted) or retention_faults(
            topics, {spec.name: journal.retention_ms(spec.name) for spec in wanted}
        )


class Login(enum.StrEnum):
    """Programs whose login need not own the journal's tables."""

    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"
    PIPELINE = "pipeline"


def grant(journal_url: str, topics: Topics, role: str, program: Login) -> None:
    """Let a role of the journal's PostgreSQL do what `program` needs, and no more.

    Raises `CommandFailed` with `Exit.USAGE` for another journal.
    """
    try:
        grant_role(journal_url, role, appended_by(program, topics), client_name=_CLIENT)
    except UnknownJournal as error:
        raise CommandFailed(f"--journal: {error}", Exit.USAGE) from error


@contextmanager
def opened(url: str) -> Iterator[Journal]:
    """Lend the journal, which connects when first used.

    Raises `CommandFailed` with `Exit.USAGE` for what is no journal's URL.
    """
    try:
        journal = _open(url)
    except Permanent as error:
        raise CommandFailed(f"--journal: {error}", Exit.USAGE) from error
    try:
        yield journal
    finally:
        journal.close()


def _open(url: str) -> Journal:
    if url.startswith("memory://"):
        raise UnknownJournal("memory:// lives in one process; use postgresql:// or kafka://")
    return open_journal(url, client_name=_CLIENT)
