"""What a program says that is started without what it needs."""

import os
from pathlib import Path

import pytest

from packhorse.runtime.token_file import ensure_token_file
from tests.harness.command_line import program
from tests.harness.postgres import Databases

_PROGRAMS = ["publisher", "content", "subscriber", "cleanup", "topology", "jobs"]
_NOWHERE = "postgresql://nobody:secret@127.0.0.1:1/nothing"


def _started(name: str, folder: Path, database_url: str, journal_url: str) -> tuple[int, str]:
    ensure_token_file(folder / "tokens.json")
    settings = {
        "PACKHORSE_DATABASE_URL": database_url,
        "PACKHORSE_JOURNAL_URL": journal_url,
        "PACKHORSE_BLOBS_URL": str(folder / "blobs"),
        "PACKHORSE_TOKEN_FILE": str(folder / "tokens.json"),
        "PACKHORSE_SUBSCRIBER": "sub1",
    }
    module = f"packhorse_services.{name}"
    done = program(module, environment={**os.environ, **settings})
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_database_that_is_away_is_one_line_and_exit_code_1(name: str, tmp_path: Path) -> None:
    code, said = _started(name, tmp_path, _NOWHERE, _NOWHERE)
    assert code == 1
    assert "PACKHORSE_DATABASE_URL" in said
    assert said.count("\n") == 1, said
    assert "secret" not in said


def test_a_journal_without_tables_is_one_line_that_names_the_command(
    databases: Databases, tmp_path: Path
) -> None:
    journal_url = databases.server.ensure_database("journal_without_tables")
    code, said = _started("publisher", tmp_path, databases.new(), journal_url)
    assert code == 1
    assert "packhorse topics create" in said
    assert said.count("\n") == 1, said
