"""Logins of one server: each enters its own database, and no other one (review: alice and bob)."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest

from packhorse.db.migrate import upgrade
from packhorse_services.cli.configuration import warnings
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.postgres import Databases

_ROLES = "packhorse_exporter, packhorse_importer, packhorse_bookkeeper"
_STEAL = "UPDATE content.node SET properties = properties"


@dataclass(frozen=True)
class Server:
    """Two logins, each the owner of a migrated database of its name."""

    superuser: psycopg.Connection
    address: str

    def url(self, login: str, database: str) -> str:
        return f"postgresql://{login}:{login}@{self.address}/{database}"


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres, databases: Databases) -> Iterator[Server]:
    del databases  # its template database made the roles
    address = urlsplit(postgres.url()).netloc.rpartition("@")[2]
    with psycopg.connect(postgres.url(), autocommit=True) as superuser:
        made = Server(superuser, address)
        for login in ("alice", "bob"):
            superuser.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{login}'")
            superuser.execute(f"GRANT {_ROLES} TO {login} WITH SET TRUE")
            superuser.execute(f"CREATE DATABASE {login} OWNER {login}")
            upgrade(made.url(login, login), "tests")
        yield made


def test_a_login_does_not_enter_anothers_database(server: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(server.url("alice", "bob"))
    with psycopg.connect(server.url("bob", "bob")) as own:
        own.execute("SET ROLE packhorse_importer")
        own.execute(_STEAL)


def test_config_check_reports_a_copy_that_everybody_may_enter(server: Server) -> None:
    url = server.url("bob", "copy_of_bob")
    server.superuser.execute("CREATE DATABASE copy_of_bob OWNER bob TEMPLATE bob")
    with psycopg.connect(server.url("alice", "copy_of_bob")) as stranger:
        stranger.execute("SET ROLE packhorse_importer")
        stranger.execute(_STEAL)
    (reported,) = warnings({"PACKHORSE_DATABASE_URL": url})
    command = reported[reported.index("REVOKE") : reported.index(" as its owner")]
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(command)
    assert list(warnings({"PACKHORSE_DATABASE_URL": url})) == []
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(server.url("alice", "copy_of_bob"))


def test_config_check_reports_a_journal_that_is_away() -> None:
    (reported,) = warnings({"PACKHORSE_JOURNAL_URL": "postgresql://u:secret@127.0.0.1:1/journal"})
    assert reported.startswith("PACKHORSE_JOURNAL_URL: the database can't be reached")
    assert "secret" not in reported
    assert list(warnings({"PACKHORSE_JOURNAL_URL": "kafka://127.0.0.1:1"})) == []
