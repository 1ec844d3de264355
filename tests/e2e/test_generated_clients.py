"""Clients that users generate from the OpenAPI document run the three main calls."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.generated import run_python_client, run_typescript_client
from tests.harness.postgres import Databases
from tests.harness.site import Site, site


@pytest.fixture(scope="module")
def small_site(databases: Databases):
    with site(databases, databases.new("journal")) as built:
        built.subscriber("sub1", editable=True)
        built.start()
        yield built


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
