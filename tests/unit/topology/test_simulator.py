"""The simulator's seeds: a thousand clusters, and broken builds that it must find."""

import pytest

from tests.harness.topology.broken import BROKEN
from tests.harness.topology.faults import seeds, simulate
from tests.harness.topology.sites import Build
from tests.harness.topology.world import SimulationFailed

SHARE = 100
RUNS = [
    *(("lease", part) for part in range(6)),
    *(("voting", part) for part in range(2)),
    *(("slow voting", part) for part in range(2)),
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


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_build_is_found(broken: str) -> None:
    store, build = BROKEN[broken]
    with pytest.raises(SimulationFailed, match=r"^seed \d+, at "):
        simulate_all(store, build)


def simulate_all(store: str, build: Build) -> None:
    for seed in range(SHARE):
        simulate(store, seed, build)


def test_a_seed_is_the_same_run_each_time() -> None:
    first, second = (simulate("lease", 7) for _ in range(2))
    assert first.world.random.random() == second.world.random.random()
    assert first.checks.followed == second.checks.followed
