"""Clients that users generate from the OpenAPI document make the main calls."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.generated import (
    CLIENTS,
    run_go_client,
    run_java_client,
    run_python_client,
    run_typescript_client,
    validate_document,
)
from tests.harness.openapi import FOLDER, SERVICES
from tests.harness.postgres import Databases
from tests.harness.processes import Program
from tests.harness.site import Site, site


@pytest.fixture(scope="module")
def small_site(databases: Databases):
    with site(databases, databases.new("journal")) as built:
        built.subscriber("sub1", editable=True)
        built.start()
        yield built


@pytest.fixture
def jobs(databases: Databases, small_site: Site) -> Program:
    """A jobs service with nothing in its database."""
    program = small_site.programs.jobs(databases.new("jobs"))
    program.start()
    return program.ready()


@pytest.mark.parametrize(
    "run", [run_python_client, run_typescript_client, run_java_client, run_go_client]
)
def test_a_generated_client_distributes_lists_queues_and_clears(
    run: Callable[..., str], small_site: Site, tmp_path: Path
) -> None:
    path = f"/generated/{run.__name__}"
    small_site.put(path, properties={"by": run.__name__})
    printed = run(tmp_path, small_site.publisher.url, small_site.programs.token, path, "sub1")
    answer = json.loads(printed)
    assert answer["queues"] == ["sub1"]
    assert answer["state"] == "DISTRIBUTED", "Prefer: wait was not heard"
    assert answer["up_to_offset"] == 0, "the clear had another bound"
    assert answer["refused"] == 404
    assert len(answer["command_id"]) == 32
    found = small_site.get(f"/distributions/{answer['package_id']}")
    assert found["paths"] == [path]


@pytest.mark.parametrize("run", [run_python_client, run_typescript_client])
def test_a_generated_client_adds_finds_and_changes_jobs(
    run: Callable[..., str], small_site: Site, jobs: Program, tmp_path: Path
) -> None:
    topic = f"clients/{run.__name__}"
    token = small_site.programs.token
    answer = json.loads(run(tmp_path, jobs.url, token, topic, program="jobs"))
    number = answer.pop("number")
    assert answer == {
        "again": number,
        "found": [number],
        "states": ["STOPPED", "QUEUED", "QUEUED"],
        "size": 3,
        "schedule": "30 2 * * *",
        "refused": 422,
    }


@pytest.mark.parametrize("program", SERVICES)
def test_openapi_generator_accepts_the_document(program: str, tmp_path: Path) -> None:
    validate_document(program, tmp_path)


def test_the_guide_names_the_generators_that_are_tested() -> None:
    guide = (FOLDER.parent / "docs" / "guide.md").read_text()
    python = (CLIENTS / "python" / "requirements.txt").read_text()
    typescript = json.loads((CLIENTS / "typescript" / "package.json").read_text())
    java = (CLIENTS / "openapi_generator" / "pom.xml").read_text()
    [number] = re.findall(r"openapi-python-client==(\S+)", python)
    assert f"openapi-python-client {number} |" in guide
    assert f"openapi-ts {typescript['devDependencies']['@hey-api/openapi-ts']} |" in guide
    [number] = re.findall(r"openapi-generator-cli</artifactId>\s*<version>([^<]+)", java)
    assert f"openapi-generator-cli {number} |" in guide
