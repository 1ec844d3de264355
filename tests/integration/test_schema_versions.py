"""Programs and databases of different releases."""

import re
import shutil
from importlib import import_module
from pathlib import Path

import psycopg
import pytest

from packhorse.db import migrations
from packhorse.db.prepare import DatabaseUnavailable, prepare_database
from packhorse.db.version import HEAD, SchemaTooNew
from tests.harness.postgres import Databases
from tests.harness.processes import Program
from tests.harness.site import site

_LAST_RELEASE = "0010"
"""The schema of the release before this one, whose programs run on ours (docs/operations/)."""

_VERSIONS = Path(migrations.__path__[0]) / "versions"

_NEXT_MIGRATION = """
from alembic import op
revision = "9001"
down_revision = "{head}"
def upgrade():
    op.execute("ALTER TABLE bookkeeping.position ADD COLUMN next_release text")
    op.execute("CREATE TABLE bookkeeping.next_release (name text PRIMARY KEY)")
"""


def _set_schema(url: str, revision: str, needs_program: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE packhorse_schema SET version_num = %s, needs_program = %s",
            (revision, needs_program),
        )


def test_a_database_that_is_newer_but_has_all_is_used_and_reported(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    _set_schema(database_url, "9001", HEAD)
    prepare_database(database_url, "tests")
    assert "newer release of packhorse has migrated the database to schema 9001" in caplog.text


def test_a_database_that_lacks_what_this_program_needs_is_refused(database_url: str) -> None:
    _set_schema(database_url, "9002", "9001")
    with pytest.raises(SchemaTooNew, match=f"before schema 9001 can't use; this one knows {HEAD}"):
        prepare_database(database_url, "tests")


def test_migrations_take_nothing_away_from_programs_of_the_release_before() -> None:
    contracting = re.compile(
        r"\bDROP (TABLE|COLUMN|SCHEMA|FUNCTION)|\bRENAME\b|\bSET NOT NULL|\bALTER COLUMN \w+ TYPE",
        re.IGNORECASE,
    )
    for path in sorted(_VERSIONS.glob("[0-9]*.py")):
        if path.name[:4] <= _LAST_RELEASE:
            continue
        module = import_module(f"packhorse.db.migrations.versions.{path.stem}")
        needs = getattr(module, "needs_program", _LAST_RELEASE)
        assert needs <= _LAST_RELEASE, f"{path.name}: the release before could not run on it"
        assert not contracting.search(path.read_text()) or hasattr(module, "needs_program"), (
            f"{path.name} takes something away: say needs_program, the oldest schema without need"
        )


def test_a_database_that_is_away_or_missing_is_one_line_that_says_what_to_do(
    databases: Databases,
) -> None:
    for url in ("postgresql://u:secret@127.0.0.1:1/x", databases.server.url("no_such_database")):
        with pytest.raises(DatabaseUnavailable, match="is it running, and does P") as refused:
            prepare_database(url, "tests")
        assert "\n" not in str(refused.value)
        assert "secret" not in str(refused.value)


def _next_release(folder: Path) -> str:
    """Return a PYTHONPATH with a copy of packhorse that has one migration more."""
    sources = Path(__file__).parents[2]
    for source, package in (("shared", "packhorse"), ("services", "packhorse_services")):
        copied = folder / source / package
        # Another program may just put a compiled module there, under another name at first.
        ignored = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(sources / source / package, copied, ignore=ignored)
    versions = folder / "shared/packhorse/db/migrations/versions"
    (versions / "9001_next_release.py").write_text(_NEXT_MIGRATION.format(head=HEAD))
    return f"{folder / 'shared'}:{folder / 'services'}"


def _replace(program: Program, **environment: str) -> None:
    program.environment.pop("PYTHONPATH", None)
    program.environment |= environment
    program.restart()


def test_a_rolling_upgrade_and_the_way_back_lose_nothing(
    databases: Databases, tmp_path: Path
) -> None:
    path = _next_release(tmp_path)
    with site(databases, databases.new("journal")) as running:
        running.subscriber("sub1")
        running.subscriber("sub2")
        running.start()
        pages = iter(range(100))

        def distribute() -> None:
            page = f"/page{next(pages)}"
            running.put(page)
            running.distribute_everywhere(page)

        distribute()
        _replace(running.content, PYTHONPATH=path)  # migrates the author's database
        _replace(running.subscribers["sub1"], PYTHONPATH=path)
        distribute()
        running.publisher.restart()  # an old replica that a node's drain restarts meanwhile
        distribute()
        _replace(running.content)  # and back
        _replace(running.subscribers["sub1"])
        distribute()
        for program in (running.publisher, running.content, running.subscribers["sub1"]):
            assert "has migrated the database to schema 9001" in program.said()
        assert len(set(running.hashes("/").values())) == 1
