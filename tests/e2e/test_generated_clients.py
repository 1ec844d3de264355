"""Clients that users generate from the OpenAPI document run the three main calls."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.generated import run_python_client, run_typescript_client
from tests.harness.postgres import Databases
from tests.harness.processes import Room
from tests.harness.site import Site, site


@pytest.fixture(scope="module")
def small_site(databases: Databases):
    with site(databases, databases.new("journal")) as built:
        built.subscriber("sub1", editable=True)
        built.start()
        yield built


@pytest.fixture
def jobs(databases: Databases, small_site: Site) -> Room:
    """A jobs service with nothing in its database."""
    room = small_site.rooms.jobs(databases.new("jobs"))
    room.start()
    return room.ready()


@pytest.mark.parametrize("run", [run_python_client, run_typescript_client])
def test_a_generated_client_distributes_lists_queues_and_clears(
    run: Callable[..., str], small_site: Site, tmp_path: Path
) -> None:
    path = f"/generated/{run.__name__}"
    small_site.put(path, properties={"by": run.__name__})
    printed = run(tmp_path, small_site.publisher.url, small_site.rooms.token, path, "sub1")
    answer = json.loads(printed)
    assert answer["queues"] == ["sub1"]
    assert answer["refused"] == 404
    assert len(answer["command_id"]) == 32
    found = small_site.get(f"/distributions/{answer['package_id']}")
    assert found["paths"] == [path]


@pytest.mark.parametrize("run", [run_python_client, run_typescript_client])
def test_a_generated_client_adds_finds_and_changes_jobs(
    run: Callable[..., str], small_site: Site, jobs: Room, tmp_path: Path
) -> None:
    topic = f"clients/{run.__name__}"
    token = small_site.rooms.token
    answer = json.loads(run(tmp_path, jobs.url, token, topic, room="jobs"))
    number = answer.pop("number")
    assert answer == {
        "again": number,
        "found": [number],
        "states": ["STOPPED", "QUEUED", "QUEUED"],
        "size": 3,
        "schedule": "30 2 * * *",
        "refused": 422,
    }
