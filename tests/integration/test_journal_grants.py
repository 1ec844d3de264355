"""Grants of a journal in PostgreSQL that can't be given: nothing is changed, and it is said why."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from packhorse.messaging.sql.grants import NotGranted
from packhorse.wire.topics import Topics
from packhorse_services.cli.app import run
from packhorse_services.cli.topics import provision as topics
from packhorse_services.cli.topics.provision import Login
from tests.harness.journal_logins import JournalLogins
from tests.harness.postgres import Databases

TOPICS = Topics()


@pytest.fixture
def urls(journal_logins: JournalLogins) -> dict[str, str]:
    """A new journal's URL by login, with topics."""
    urls = journal_logins.new()
    assert topics.create(urls["journal_owner"], TOPICS) == []
    return urls


@pytest.fixture
def owner(urls: dict[str, str]) -> str:
    return urls["journal_owner"]


@pytest.fixture
def superuser(owner: str, lasting_databases: Databases) -> Iterator[psycopg.Connection]:
    """Of the journal's database."""
    url = lasting_databases.server.url(urlsplit(owner).path[1:])
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def test_a_grant_that_can_not_be_says_why(
    owner: str,
    urls: dict[str, str],
    superuser: psycopg.Connection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(role: str, journal: str, *more: str) -> str:
        grant = ["topics", "grant", role, "--as", "subscriber", "--journal", journal, *more]
        assert run(grant) in (1, 2)
        return capsys.readouterr().err

    assert "there is no role nobody; make it first" in said("nobody", owner)
    assert "journal_owner is, or can become, journal_owner" in said("journal_owner", owner)
    topics.grant(owner, TOPICS, "publisher", Login.PUBLISHER)
    assert "belong to journal_owner" in said("subscriber", urls[Login.PUBLISHER])
    assert "create it with `packhorse topics create`" in said(
        "subscriber", owner, "--topic-prefix", "no"
    )
    let_in = "SELECT has_database_privilege('subscriber', current_database(), 'CONNECT')"
    assert superuser.execute(let_in).fetchall() == [(False,)]
    assert "docs/security.md" in said("subscriber", "kafka://127.0.0.1:1")


def test_who_can_only_become_the_owner_is_refused_as_either(
    owner: str, superuser: psycopg.Connection
) -> None:
    superuser.execute("CREATE ROLE deputy LOGIN PASSWORD 'deputy'")
    superuser.execute("GRANT journal_owner TO deputy WITH INHERIT FALSE, SET TRUE")
    superuser.execute(f"GRANT CONNECT ON DATABASE {superuser.info.dbname} TO deputy")
    try:
        with pytest.raises(NotGranted, match="deputy is, or can become, journal_owner"):
            topics.grant(owner, TOPICS, "deputy", Login.SUBSCRIBER)
        deputys = owner.replace("journal_owner:journal_owner", "deputy:deputy")
        with pytest.raises(NotGranted, match="belong to journal_owner"):
            topics.grant(deputys, TOPICS, "subscriber", Login.SUBSCRIBER)
    finally:
        superuser.execute("DROP OWNED BY deputy")
        superuser.execute("DROP ROLE deputy")


def test_whom_only_the_database_s_owner_can_let_in_is_granted_nothing_before(
    owner: str, superuser: psycopg.Connection
) -> None:
    database = superuser.info.dbname
    superuser.execute(f"ALTER DATABASE {database} OWNER TO CURRENT_USER")
    superuser.execute(f"GRANT CONNECT ON DATABASE {database} TO journal_owner")
    with pytest.raises(NotGranted, match=f'run GRANT CONNECT ON DATABASE "{database}" TO "sub'):
        topics.grant(owner, TOPICS, "subscriber", Login.SUBSCRIBER)
    assert not superuser.execute("SELECT FROM journal.appender").fetchall()
    superuser.execute(f"GRANT CONNECT ON DATABASE {database} TO subscriber")
    topics.grant(owner, TOPICS, "subscriber", Login.SUBSCRIBER)
    assert superuser.execute("SELECT FROM journal.appender").fetchall()
