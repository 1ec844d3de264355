"""A restore asks the author whether it could take the past, before that is looked for."""

from urllib.parse import urlsplit

import psycopg
import pytest

from packhorse_services.pipeline.at.task import require_author
from packhorse_services.pipeline.errors import TaskRefused


def test_a_database_that_a_restore_could_write_is_accepted(database_url: str) -> None:
    require_author(database_url)


def test_a_database_of_something_else_is_refused(database_url: str) -> None:
    other = urlsplit(database_url)._replace(path="/postgres").geturl()
    with pytest.raises(TaskRefused, match=r'relation "content\.node" does not exist'):
        require_author(other)


def test_a_user_who_may_not_import_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as superuser:
        superuser.execute("CREATE ROLE restores_nothing LOGIN PASSWORD 'x'")
        parsed = urlsplit(database_url)
        address = parsed.netloc.rpartition("@")[2]
        try:
            database = superuser.info.dbname
            superuser.execute(f"GRANT CONNECT ON DATABASE {database} TO restores_nothing")
            with pytest.raises(TaskRefused, match="its user lacks a right"):
                require_author(parsed._replace(netloc=f"restores_nothing:x@{address}").geturl())
        finally:
            superuser.execute("DROP OWNED BY restores_nothing")
            superuser.execute("DROP ROLE restores_nothing")
