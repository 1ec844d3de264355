"""The least that a program's login may have, as docs/deployment.md says it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from packhorse.content import tree
from packhorse.db.migrate import upgrade
from packhorse.messaging.open import open_journal
from packhorse.wire.messages import Action
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from packhorse_services.publisher.outbox.request import DistributionRequest, Pending
from tests.harness.cleanup import staged
from tests.harness.feed import Feed, page
from tests.harness.postgres import Databases
from tests.harness.publishing import Author
from tests.harness.subscriber import Worker

_ROLES = "packhorse_exporter, packhorse_importer, packhorse_bookkeeper"

NewDatabase = Callable[[str], str]


@pytest.fixture(scope="module")
def new_database(postgres: EmbeddedPostgres, databases: Databases) -> Iterator[NewDatabase]:
    """Makes migrated databases that belong to a login with no other right."""
    del databases  # its template database made the roles
    address = urlsplit(postgres.url()).netloc.rpartition("@")[2]
    with psycopg.connect(postgres.url(), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE restricted LOGIN PASSWORD 'restricted'")
        superuser.execute(f"GRANT {_ROLES} TO restricted WITH SET TRUE")

        def new(name: str) -> str:
            superuser.execute(f"CREATE DATABASE {name} OWNER restricted")
            url = f"postgresql://restricted:restricted@{address}/{name}"
            upgrade(url, "tests")
            return url

        yield new


def test_r23_a_login_without_createrole_migrates_where_the_roles_were_granted_to_it(
    new_database: NewDatabase,
) -> None:
    with psycopg.connect(new_database("restricted")) as connection:
        for role in _ROLES.split(", "):
            connection.execute(f"SET LOCAL ROLE {role}")
            connection.execute("RESET ROLE")


def test_r23_such_a_login_does_all_the_work(new_database: NewDatabase, tmp_path: Path) -> None:
    journal = open_journal(new_database("restricted_journal"), client_name="tests")
    author_url, subscriber_url = new_database("restricted_author"), new_database("restricted_sub")
    with staged(author_url, tmp_path, journal) as stage:
        author = Author(author_url, journal, stage.blobs)
        author.write(page("/a", 1), page("/a/b", text="x" * 100), page("/c"))
        everything = Pending(_adding("/"))
        author.replica().publish([everything, Pending(_adding("/a"))])
        assert everything.future.result().offset == 0
        killed, worker = (Worker(subscriber_url, journal, stage.blobs) for _ in range(2))
        killed.begin()
        killed.die()
        worker.run()
        worker.send_statuses()
        assert [status.offset for status in Feed(journal, stage.blobs).statuses()] == [0, 1]
        with psycopg.connect(author_url) as ours, psycopg.connect(subscriber_url) as theirs:
            assert tree.content_hash(theirs) == tree.content_hash(ours)
        worker.die()
        author.close()
        stage.forget_log()
        journal.enforce_retention()
        assert stage.run().state.value == "SUCCEEDED"


def _adding(deep: str) -> DistributionRequest:
    return DistributionRequest(Action.ADD, (), (deep,), "tests", ("/",))
