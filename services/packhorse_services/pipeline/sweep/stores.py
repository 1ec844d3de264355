"""The places that a mark reads, and when it may read them: clocks, identity, who is known."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.bookkeeping import subscriber_rows
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.db.rows import now_ms
from packhorse.messaging.api import Journal
from packhorse_services.pipeline.engine.databases import AUTHOR, reading
from packhorse_services.pipeline.errors import NotYet, TaskRefused
from packhorse_services.pipeline.settings import Settings

MAX_SKEW_MS = 10 * 60_000


@dataclass(frozen=True)
class Stores:
    """Everything that refers to blobs, opened for the driver and named for the executors."""

    blobs: BlobStore
    journal: Journal
    topic: str
    blobs_url: str
    journal_url: str
    author_url: str
    subscriber_urls: Mapping[str, str]

    def now_ms(self) -> int:
        """Return the author's database's time, to which the blob store's must be near (R28).

        Raises `TaskRefused` when one of them has jumped: no age is certain then.
        """
        before, store, after = self._clocks()
        if not before - MAX_SKEW_MS <= store <= after + MAX_SKEW_MS:
            raise TaskRefused(
                "the clocks of the blob store and of the author's database are "
                f"{abs(store - after) // 1000} s apart, so that no age is certain; set them right"
            )
        return after

    def check_subscribers(self, gone: Collection[str]) -> None:
        """Raise `TaskRefused` when somebody is known whose repository would not be read.

        Also when one that is said to be gone has just announced itself.
        """
        with reading(self.author_url, AUTHOR) as connection:
            act_as(connection, BOOKKEEPER)
            alive = subscriber_rows.seen_since(connection, gone, _ALIVE_S)
            read = [*self.subscriber_urls, *gone]
            unread = subscriber_rows.names_but(connection, read, _NAMED)
        if alive is not None:
            raise TaskRefused(
                f"subscriber {alive} has announced itself a moment ago, so it is not gone; end "
                "it first, or add it to PACKHORSE_SUBSCRIBER_DATABASES"
            )
        if unread:
            raise TaskRefused(
                "the author knows subscribers whose content would not be read: "
                f"{', '.join(unread)}; add them to PACKHORSE_SUBSCRIBER_DATABASES, or say "
                "--gone NAME of one that is gone for good"
            )

    def unheard_of(self, names: Collection[str]) -> list[str]:
        """Return those of the names that no subscriber has that the author knows, in order."""
        with reading(self.author_url, AUTHOR) as connection:
            act_as(connection, BOOKKEEPER)
            known = subscriber_rows.names_among(connection, names)
        return sorted(set(names) - known)

    def check_in_flight(self, ended_ms: int) -> None:
        """Raise `NotYet` while an export that is older than the mark's end may go on.

        It may put an old reference into the log, which neither scan has seen. Raises `TaskRefused`
        when nobody could see such an export.
        """
        with reading(self.author_url, AUTHOR) as connection:
            hidden = _one(connection, _HIDDEN)
            if hidden is not None:
                raise TaskRefused(
                    f"nobody may see what session {hidden} of the author's database does; use the "
                    "publisher's login, or grant pg_read_all_stats to this one"
                )
            older = _one(connection, _OLDER, ended_ms)
        if older is not None:
            raise NotYet(
                f"a transaction at the author is older than the end of the mark ({older}); what "
                "it exports may refer to what was marked: sweep when it has ended"
            )

    def _clocks(self) -> tuple[int, int, int]:
        """Return the database's time, the store's a moment later, and the database's again."""
        with reading(self.author_url, AUTHOR) as connection:
            before = now_ms(connection)
            store = self.blobs.now_ms()
            return before, store, now_ms(connection)


_ALIVE_S = 60
_NAMED = 5
"""So many names does a refusal say at most."""

_HIDDEN = """
    SELECT pid FROM pg_stat_activity WHERE datname = current_database()
    AND backend_type = 'client backend' AND query = '<insufficient privilege>' LIMIT 1
"""
_OLDER = """
    SELECT format('%%s, session %%s, since %%s', application_name, pid, xact_start)
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND xact_start <= to_timestamp(%s / 1000.0) ORDER BY xact_start LIMIT 1
"""


def _one(connection: Connection, query: str, *given: object) -> Any:
    row = connection.execute(query.encode(), given or None).fetchone()
    return None if row is None else row[0]


@contextmanager
def stores_of(settings: Settings) -> Iterator[Stores]:
    """Open what the settings name. Raises `TaskRefused` when one of them is missing."""
    from packhorse.blobs.open import open_blobs
    from packhorse.messaging.open import open_journal

    settings.require("database_url", "journal_url", "blobs_url")
    with (
        closing(open_blobs(settings.blobs_url)) as blobs,
        closing(open_journal(settings.journal_url, client_name="packhorse-mark")) as journal,
    ):
        yield Stores(
            blobs,
            journal,
            settings.topics.package,
            settings.blobs_url,
            settings.journal_url,
            settings.author_url,
            {name: url.get_secret_value() for name, url in settings.subscriber_databases.items()},
        )
