"""A journal in PostgreSQL with a login for each program."""

import itertools
from urllib.parse import urlsplit

import psycopg

from packhorse.db.migrate import upgrade
from packhorse_services.cli.topics.provision import Login
from tests.harness.postgres import Databases

_LOGINS = ("journal_owner", *Login, "stranger")
_R23 = "packhorse_exporter, packhorse_importer, packhorse_bookkeeper"
_TEMPLATE = "template_journal_roles"


class JournalLogins:
    """Makes the roles, which have those of R23 too, for databases of their own. Once a server."""

    def __init__(self, databases: Databases) -> None:
        self._server, self._numbers = databases.server, itertools.count()
        with psycopg.connect(self._server.url(), autocommit=True) as superuser:
            for role in _LOGINS:
                superuser.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
                superuser.execute(f"GRANT {_R23} TO {role} WITH SET TRUE")
            superuser.execute(f"CREATE DATABASE {_TEMPLATE} OWNER journal_owner")
        upgrade(self._url("journal_owner", _TEMPLATE), "tests")

    def new(self) -> dict[str, str]:
        """Return a new journal's URL by login; it is `journal_owner`'s, and nothing is granted."""
        name = f"journal_roles_{next(self._numbers)}"
        with psycopg.connect(self._server.url(), autocommit=True) as superuser:
            superuser.execute(f"CREATE DATABASE {name} OWNER journal_owner TEMPLATE {_TEMPLATE}")
            superuser.execute(f"REVOKE CONNECT, TEMPORARY ON DATABASE {name} FROM PUBLIC")
        return {login: self._url(login, name) for login in _LOGINS}

    def _url(self, login: str, database: str) -> str:
        address = urlsplit(self._server.url()).netloc.rpartition("@")[2]
        return f"postgresql://{login}:{login}@{address}/{database}"


def is_refused(connection: psycopg.Connection, statement: str) -> bool:
    """Whether the login lacks the right to this; what it may do is rolled back."""
    try:
        with connection.transaction():
            connection.execute(statement)
            raise psycopg.Rollback
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False
