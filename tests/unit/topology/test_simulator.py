"""The simulator's seeds: hundreds of clusters, and broken builds that it must find."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.depth import at_depth
from tests.harness.topology.sites import Build
from tests.harness.topology.world import SimulationFailed
from tests.unit.topology.broken import BROKEN
from tests.unit.topology.faults import seeds, simulate

SHARE = int(os.environ.get("TEST_SIMULATOR_SEEDS", "8"))
"""Clusters of each run below."""
MOST_SEEDS = 300
"""So many clusters at most find each broken build."""
ROOT = Path(__file__).parents[3]
RUNS = [
    *(("lease", part) for part in range(6)),
    *(("voting", part) for part in range(2)),
    *(("slow voting", part) for part in range(2)),
    ("jumping lease", 0),
]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize(("store", "part"), RUNS)
def test_topology_holds_whatever_happens(store: str, part: int) -> None:
    agreed = 0
    for seed in seeds(part * SHARE, SHARE):
        agreed += simulate(store, seed).checks.views_agreed
    assert agreed > 0, "nothing ever changed"


@pytest.mark.proof
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_build_is_found(broken: str) -> None:
    store, build = BROKEN[broken]
    with pytest.raises(SimulationFailed, match=r"^seed \d+, at "):
        simulate_all(store, build)


def simulate_all(store: str, build: Build) -> None:
    for seed in range(MOST_SEEDS):
        simulate(store, seed, build)


def test_a_seed_is_the_same_run_in_each_process() -> None:
    """Also where texts have other hashes, so that sets have another order."""
    program = (
        "import logging; logging.disable(50)\n"
        "from tests.unit.topology.faults import simulate\n"
        "stores = ('lease', 'voting', 'slow voting')\n"
        f"runs = [simulate(store, seed) for store in stores for seed in range({at_depth(3, 1)})]\n"
        "print([(one.world.random.random(), sorted(one.checks.followed)) for one in runs])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(runs) == 1
