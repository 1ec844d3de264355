"""Importing the package loads nothing but itself."""

import json
import subprocess
import sys

import pytest

import packhorse


def loaded(code: str) -> set[str]:
    reported = "import json, sys; before = set(sys.modules); {}; "
    reported += "print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run(
        [sys.executable, "-c", reported.format(code)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(json.loads(done.stdout))


def test_the_package_alone_loads_next_to_nothing() -> None:
    ours = {name for name in loaded("import packhorse") if name.partition(".")[0] == "packhorse"}
    assert ours == {"packhorse"}
    assert len(loaded("import packhorse")) < 20


def test_a_client_loads_no_service_no_database_and_no_server() -> None:
    found = {name.partition(".")[0] for name in loaded("from packhorse import Client")}
    strangers = {"packhorse_services", "psycopg", "sqlalchemy", "fastapi", "boto3", "pydantic"}
    assert not found & strangers


@pytest.mark.parametrize("name", packhorse.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(packhorse, name).__name__ == name
    assert name in dir(packhorse)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        packhorse.Nothing  # noqa: B018
