"""The least that a program's login may have, as docs/deployment.md says it."""

from urllib.parse import urlsplit

import psycopg

from packhorse.db.engine import open_engine
from packhorse.db.migrate import upgrade
from packhorse_services.cli.embedded import EmbeddedPostgres
from tests.harness.postgres import Databases

_ROLES = "packhorse_exporter, packhorse_importer, packhorse_bookkeeper"


def test_r23_a_login_without_createrole_migrates_where_the_roles_were_granted_to_it(
    postgres: EmbeddedPostgres, databases: Databases
) -> None:
    del databases  # its template database made the roles
    with psycopg.connect(postgres.url(), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE restricted LOGIN PASSWORD 'restricted'")
        superuser.execute(f"GRANT {_ROLES} TO restricted WITH SET TRUE")
        superuser.execute("CREATE DATABASE restricted OWNER restricted")
    address = urlsplit(postgres.url()).netloc.rpartition("@")[2]
    url = f"postgresql://restricted:restricted@{address}/restricted"
    engine = open_engine(url, "tests")
    upgrade(engine)
    engine.dispose()
    with psycopg.connect(url) as connection:
        for role in _ROLES.split(", "):
            connection.execute(f"SET LOCAL ROLE {role}")
            connection.execute("RESET ROLE")
