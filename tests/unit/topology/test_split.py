"""The seed's pseudo-partition: two halves of a cluster, fast inside and slow towards each other."""

import pytest

from tests.harness.topology.simulation import Simulation
from tests.harness.topology.sites import VotingSite

LEFT, RIGHT = ("a", "b"), ("c", "d")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


def four(store: str) -> Simulation:
    simulation = Simulation(store, seed=3)
    for machine in (*LEFT, *RIGHT):
        simulation.start(machine)
        simulation.run_for(1.0)
    simulation.run_for(2 * simulation.site.timeout_s)
    assert simulation.leaders() == {"a"}
    return simulation


def window(simulation: Simulation, seconds: float) -> float:
    """Return for how long several instances led in current views."""
    split = 0.0
    for _ in range(int(seconds * 2)):
        simulation.run_for(0.5)
        split += 0.5 * (len(simulation.leaders()) > 1)
    return split


def test_voting_over_a_slow_store_has_two_leaders_for_a_while() -> None:
    simulation = four("slow voting")
    site = simulation.site
    assert isinstance(site, VotingSite)
    for left in (one.name for machine in LEFT for one in simulation.at(machine)):
        for right in (one.name for machine in RIGHT for one in simulation.at(machine)):
            site.store.delay(left, right, 3 * site.timeout_s)
            site.store.delay(right, left, 3 * site.timeout_s)
    assert window(simulation, 5 * site.timeout_s) > site.timeout_s
    simulation.converge()
    assert len(simulation.leaders()) == 1


@pytest.mark.parametrize("way", ["request_s", "answer_s"])
@pytest.mark.parametrize("delay_s", [0.4, 2.5, 30.0])
def test_leases_have_one_leader_whoever_is_slow(way: str, delay_s: float) -> None:
    """There is one store, so a half that reaches it late is out of the view, or not current."""
    simulation = four("lease")
    for machine in LEFT:
        simulation.network.change(machine, **{way: delay_s})
    assert window(simulation, 8 * simulation.site.timeout_s) == 0
    simulation.converge()
    assert len(simulation.leaders()) == 1
