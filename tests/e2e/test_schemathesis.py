"""Schemathesis attacks every service as its OpenAPI document says, and finds nothing.

The gate asks the bounds of every parameter and body, and what one answer names of the next request;
`make chaos` sends requests at random as well.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from packhorse_services.pipeline.storage.location import Location
from tests.e2e.attacking import attack
from tests.harness.depth import at_depth, examples
from tests.harness.measures import measure
from tests.harness.postgres import Databases
from tests.harness.processes import Program
from tests.harness.site import Site, site

pytestmark = pytest.mark.timeout(1800)

CONFIGURATION = Path(__file__).parents[2] / "schemathesis.toml"
EXAMPLES = examples(25)
PHASES = at_depth("examples,coverage,fuzzing,stateful", "examples,coverage,stateful")

Attacked = dict[str, Program]


@pytest.fixture(scope="module")
def attacked(databases: Databases) -> Iterator[tuple[Site, Attacked]]:
    """A site with something in every place, so that operations have something to find."""
    with site(databases, databases.new("journal")) as built:
        subscriber = built.subscriber("sub1", editable=True)
        cleanup = built.programs.cleanup(built.author_url)
        pipeline = built.programs.reports()
        topology = built.programs.topology(built.author_url)
        jobs = built.programs.jobs(built.author_url)
        # Before its service: that is ready once there is a folder.
        measure(Location.parse(pipeline.environment["PACKHORSE_TABLES_URL"]), "delivery", {})
        built.start()
        built.put("/site/page", properties={"title": "Page"})
        built.distribute_everywhere("/site/page")
        yield (
            built,
            {
                "publisher": built.publisher,
                "content": built.content,
                "subscriber": subscriber,
                "cleanup": cleanup,
                "pipeline": pipeline,
                "topology": topology,
                "jobs": jobs,
            },
        )


@pytest.mark.parametrize(
    "program", ["publisher", "content", "subscriber", "cleanup", "pipeline", "topology", "jobs"]
)
def test_schemathesis_finds_nothing(
    program: str, attacked: tuple[Site, Attacked], tmp_path: Path
) -> None:
    built, services = attacked
    done = _attack(services[program], built.programs.token, tmp_path)
    assert done.returncode == 0, done.stdout[-8000:]
    assert services[program].running, services[program].said()


def _attack(program: Program, token: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return attack(
        [
            *("--config-file", CONFIGURATION),
            *("run", f"{program.url}/openapi.json", "-H", f"Authorization: Bearer {token}"),
            *("--phases", PHASES, "--seed", "1", "--max-examples", EXAMPLES, "--no-color"),
            *("--generation-database", "none", "--request-timeout", "120"),
        ],
        folder,
    )


@pytest.mark.proof
def test_an_undocumented_answer_is_noticed(tmp_path: Path, attacked: tuple[Site, Attacked]) -> None:
    """A checker that can't fail is none: the document of one service, the answers of another."""
    built, services = attacked
    document = tmp_path / "wrong.yaml"
    text = (CONFIGURATION.parent / "openapi" / "cleanup.yaml").read_text()
    document.write_text(text.replace("'200'", "'299'").replace("'202'", "'298'"))
    done = attack(
        [
            *("run", document, "--url", services["cleanup"].url),
            *("--seed", "1", "--max-examples", "5"),
            *("-H", f"Authorization: Bearer {built.programs.token}"),
            *("--generation-database", "none"),
        ],
        tmp_path,
    )
    assert done.returncode == 1, done.stdout[-3000:]
    assert "Undocumented Content-Type" in done.stdout, done.stdout[-3000:]
