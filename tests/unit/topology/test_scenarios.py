"""Kills, pauses, restarts, partitions and wrong clocks, in order, over both stores."""

import pytest

from packhorse.topology.events import EventKind
from tests.harness.depth import at_depth
from tests.harness.topology.process import SimulatedProcess
from tests.harness.topology.simulation import Simulation
from tests.harness.topology.sites import LeaseSite

STORES = ("lease", "voting")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


def cluster(store: str, *machines: str, seed: int = 1) -> tuple[Simulation, list[SimulatedProcess]]:
    """Return machines that have joined in this order, and agree."""
    simulation, processes = Simulation(store, seed), []
    for machine in machines:
        processes.append(simulation.start(machine))
        simulation.run_for(2 * simulation.site.timeout_s)
    simulation.checks.converged(simulation.live)
    return simulation, processes


def order(process: SimulatedProcess) -> tuple[str, ...]:
    view = process.participation.current_view()
    return () if view is None else view.local_cluster.ids


def kinds(process: SimulatedProcess, since: int = 0) -> list[EventKind]:
    return [event.kind for event, _ in process.listeners[0].heard[since:]]


@pytest.mark.parametrize("store", STORES)
def test_when_the_leader_is_killed_the_next_one_leads(store: str) -> None:
    simulation, (leader, second, third) = cluster(store, "c", "a", "b")
    assert order(second) == ("c", "a", "b")
    leader.kill()
    killed_at = simulation.world.now
    while order(second) != ("a", "b") or order(third) != ("a", "b"):
        simulation.run_for(0.1)
        assert simulation.world.now - killed_at < 2 * simulation.site.timeout_s
    assert kinds(third)[-2:] == [EventKind.CHANGING, EventKind.CHANGED]


@pytest.mark.parametrize("store", STORES)
def test_a_paused_leader_does_not_hold_its_view_when_it_goes_on(store: str) -> None:
    simulation, (leader, second) = cluster(store, "b", "a")
    leader.pause()
    simulation.run_for(3 * simulation.site.timeout_s)
    assert order(second) == ("a",)
    assert not leader.holds_view
    heard = len(leader.listeners[0].heard)
    leader.resume()
    assert not leader.holds_view
    simulation.converge()
    assert order(leader) == ("a", "b")
    assert kinds(leader, heard) == [EventKind.CHANGING, EventKind.CHANGED]


@pytest.mark.parametrize("store", STORES)
def test_a_rolling_restart_moves_each_to_the_end(store: str) -> None:
    simulation, _ = cluster(store, "c", "a", "b")
    for machine in ("a", "b", "c"):
        (process,) = simulation.at(machine)
        process.stop()
        simulation.run_for(simulation.site.timeout_s)
        assert {order(one)[0] for one in simulation.live} == {"c" if machine != "c" else "a"}
        simulation.start(machine)
        simulation.run_for(2 * simulation.site.timeout_s)
    assert {order(one) for one in simulation.live} == {("a", "b", "c")}


def test_whoever_gets_no_answers_does_not_lead_meanwhile() -> None:
    """Its requests arrive, so its lease is renewed; by its own clock it relies on none of that."""
    simulation, (leader, second) = cluster("lease", "b", "a")
    simulation.network.change("b", deaf=True)
    simulation.run_for(2 * simulation.site.timeout_s)
    assert not leader.holds_view
    assert order(second) == ("b", "a")
    simulation.converge()
    assert order(leader) == order(second) == ("b", "a")


def test_a_one_way_delay_between_two_ends_with_one_view() -> None:
    simulation, (leader, second) = cluster("slow voting", "b", "a")
    simulation.site.store.delay(leader.name, second.name, 60.0)  # type: ignore[attr-defined]
    simulation.run_for(60.0)
    simulation.converge()
    assert order(leader) == order(second)


@pytest.mark.parametrize("store", [*STORES, "slow voting"])
def test_swizzle_clog(store: str) -> None:
    """Again and again, some of five are cut off one by one and let back in another order."""
    simulation, _ = cluster(store, "a", "b", "c", "d", "e", seed=5)
    chance, machines = simulation.world.random, list("abcde")
    for round_ in range(1, at_depth(200, 60) + 1):
        clogged = chance.sample(machines, chance.randint(1, 5))
        for machine in clogged:
            simulation.network.change(machine, **{chance.choice(("cut", "deaf")): True})
            simulation.run_for(chance.uniform(0, simulation.site.timeout_s / 4))
        for machine in chance.sample(clogged, len(clogged)):
            simulation.network.clear(machine)
            simulation.run_for(chance.uniform(0, simulation.site.timeout_s / 4))
        if round_ % 10 == 0:
            simulation.converge()


@pytest.mark.parametrize("store", STORES)
def test_wall_clocks_decide_nothing(store: str) -> None:
    heard = []
    for skew in (0.0, 60.0, -60.0):
        simulation, processes = cluster(store, "b", "a", "c")
        for number, clock in enumerate(simulation.clocks.values()):
            clock.skew += skew * number
        simulation.run_for(3 * simulation.site.timeout_s)
        processes[0].kill()
        simulation.converge()
        heard.append([(event.kind, rev) for event, rev in processes[1].listeners[0].heard])
    assert heard[0] == heard[1] == heard[2]


@pytest.mark.parametrize("jump", [60.0, -60.0])
def test_a_jump_of_the_databases_clock_moves_no_leader(jump: float) -> None:
    """All leases run out at once, or last for another minute: nobody who lives is put out."""
    simulation, processes = cluster("lease", "b", "a", "c")
    assert isinstance(simulation.site, LeaseSite)
    before = len(processes[1].listeners[0].heard)
    simulation.site.ahead_s += jump
    simulation.run_for(6 * simulation.site.timeout_s)
    assert {order(one) for one in processes} == {("b", "a", "c")}
    assert kinds(processes[1], before) == []
    processes[0].kill()
    simulation.converge()
    assert {order(one) for one in processes[1:]} == {("a", "c")}


@pytest.mark.parametrize("store", STORES)
def test_a_cloned_machine_takes_no_part_until_the_first_one_ends(store: str) -> None:
    simulation, (first, other) = cluster(store, "b", "a")
    before = len(other.listeners[0].heard)
    clone = simulation.start("b")
    simulation.run_for(3 * simulation.site.timeout_s)
    assert clone.participation.trouble().startswith("DuplicateInstance")
    assert not clone.holds_view
    assert order(first) == order(other) == ("b", "a")
    assert kinds(other, before) == []
    first.kill()
    simulation.run_for(3 * simulation.site.timeout_s)
    assert order(clone) == order(other) == ("a", "b")


def test_a_renewal_that_was_given_up_and_comes_late_leaves_no_old_properties() -> None:
    """Found by seed 3311: the late one overwrote what had been announced since."""
    simulation, (first, other) = cluster("lease", "b", "a")
    first.properties.set("load", "old")
    simulation.network.change("b", request_s=8.0)
    simulation.run_for(2.5)
    first.properties.set("load", "new")
    simulation.network.heal()
    simulation.run_for(2 * simulation.site.timeout_s)
    view = other.participation.current_view()
    assert view is not None
    assert view.instances[0].properties["load"] == "new"


def test_a_preferred_instance_leads_at_the_next_election_and_not_before() -> None:
    """Seed 3 lets machines with an odd last digit be preferred."""
    simulation, (leader, second, *_) = cluster("lease", "m0", "m2", "m4", "m1", "m6", seed=3)
    assert order(second) == ("m0", "m2", "m4", "m1", "m6")
    leader.kill()
    simulation.converge()
    assert order(second) == ("m1", "m2", "m4", "m6")
    newcomer = simulation.start("m3")
    simulation.converge()
    assert order(second) == ("m1", "m2", "m4", "m6", "m3")
    second.kill()
    simulation.converge()
    assert order(newcomer) == ("m1", "m4", "m6", "m3")
    [preferred] = simulation.at("m1")
    preferred.stop()
    simulation.converge()
    assert order(newcomer) == ("m3", "m4", "m6")
