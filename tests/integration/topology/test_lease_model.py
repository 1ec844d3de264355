"""The lease store in memory, which the simulator runs on, does what the one in Postgres does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import Connection

from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.lease.store import (
    ClusterState,
    Incarnation,
    InstanceState,
    LeaseStore,
    Pulse,
    Renewal,
)
from packhorse.topology.properties import LEADER_PREFIX
from tests.harness.depth import examples
from tests.harness.postgres import Databases
from tests.harness.topology.lease_memory import LeaseMemory

LEASE_S = 1050.0  # no sum of passed times comes near its end or its half

Step = tuple[str, Incarnation, int, dict[str, str] | None]

WHO = st.builds(Incarnation, st.sampled_from("abc"), st.sampled_from(["first run", "second run"]))
PROPERTIES = st.none() | st.one_of(
    st.dictionaries(st.sampled_from("xy"), st.text("1ä'", max_size=2)),
    st.dictionaries(st.just(LEADER_PREFIX), st.sampled_from(["0", "01", "2"])),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "renew", "renew", "retire", "leave", "pass"]),
        WHO,
        st.integers(0, 11),
        PROPERTIES,
    ),
    max_size=30,
)


@dataclass
class Both:
    """The same database twice."""

    url: str

    def __post_init__(self) -> None:
        self.admin: Connection = psycopg.connect(self.url, autocommit=True)
        self.sql = SqlLeaseStore(self.url, patience_s=20.0)
        self.begin()

    def begin(self) -> None:
        self.admin.execute("DELETE FROM topology.instance")
        self.admin.execute("DELETE FROM topology.cluster")
        self.now = 0.0
        self.memory = LeaseMemory(lambda: self.now)
        self.session = self.memory.session()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.admin.execute(
            "UPDATE topology.instance SET lease_end = lease_end - make_interval(secs => %s)",
            (seconds,),
        )

    def do(self, step: Step) -> list[tuple[Any, ...]]:
        """Return what the two say to a step, and what they are afterwards."""
        name, who, number, properties = step
        if name == "pass":
            self.pass_time(number * 100.0)
            return [shown(store.look()) for store in (self.session, self.sql)]
        renewal = Renewal(who, LEASE_S, number, properties)
        act: dict[str, Callable[[LeaseStore], object]] = {
            "join": lambda store: store.join(renewal),
            "renew": lambda store: said(store.renew(renewal)),
            "retire": lambda store: store.retire(who),
            "leave": lambda store: store.leave(who),
        }
        return [(act[name](store), *shown(store.look())) for store in (self.session, self.sql)]

    def active(self) -> list[Incarnation]:
        """Return those that are active in Postgres, in their order."""
        state = self.sql.look()
        assert state is not None
        return [one.who for one in state.entries if one.state is InstanceState.ACTIVE]

    def close(self) -> None:
        self.sql.close()
        self.admin.close()


def said(pulse: Pulse | None) -> object:
    return pulse and (pulse.seq, pulse.acknowledged_by_all, pulse.overdue)


def shown(state: ClusterState | None) -> tuple[Any, ...]:
    if state is None:
        return (None,)
    return (state.seq, state.acknowledged_by_all, state.entries, state.inactive)


@pytest.fixture(scope="module")
def both(databases: Databases) -> Iterator[Both]:
    both = Both(databases.new())
    yield both
    both.close()


LEADER, NEXT, THIRD, FOURTH = (Incarnation(name, "first run") for name in "abcd")
PREFERRED: list[Step] = [
    ("join", LEADER, 0, None),
    ("join", NEXT, 0, None),
    ("join", THIRD, 0, {LEADER_PREFIX: "0"}),
]
THE_LEADER_LIVES: list[Step] = [*PREFERRED, ("leave", NEXT, 0, None)]
ELECTION: list[Step] = [
    *PREFERRED,
    ("leave", LEADER, 0, None),
    ("join", LEADER, 0, None),
    ("leave", NEXT, 0, None),
    ("pass", LEADER, 6, None),
    ("renew", LEADER, 0, {LEADER_PREFIX: "01"}),
    ("pass", LEADER, 5, None),
    ("retire", LEADER, 0, None),
]
SILENT: list[Step] = [
    *(("join", one, 0, None) for one in (LEADER, NEXT, THIRD)),
    ("pass", LEADER, 6, None),
    ("renew", LEADER, 0, None),
    ("renew", THIRD, 0, None),
    ("pass", LEADER, 5, None),
    ("leave", LEADER, 0, None),
    ("renew", NEXT, 0, None),
]
PREFERRED_BUT_SILENT: list[Step] = [
    *PREFERRED,
    ("pass", LEADER, 6, None),
    ("renew", LEADER, 0, None),
    ("renew", NEXT, 0, None),
    ("pass", LEADER, 5, None),
    ("leave", LEADER, 0, None),
]
FIRST, SECOND = Incarnation("a", "first run"), Incarnation("a", "second run")


@given(steps=STEPS)
@example(steps=[("join", FIRST, 0, None), ("pass", FIRST, 11, None), ("join", SECOND, 0, None)])
@example(steps=ELECTION)
@example(steps=PREFERRED_BUT_SILENT)
@example(steps=THE_LEADER_LIVES)
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    report_multiple_bugs=False,
)
def test_both_say_the_same(both: Both, steps: list[Step]) -> None:
    both.begin()
    for step in steps:
        memory, postgres = both.do(step)
        assert memory == postgres, step


def test_a_silent_one_keeps_its_place_when_the_leader_leaves(both: Both) -> None:
    """No prefix is lower than its own: it may still renew its lease, and then leads."""
    both.begin()
    for step in SILENT:
        memory, postgres = both.do(step)
        assert memory == postgres, step
    assert both.active() == [NEXT, THIRD]


def test_nobody_overtakes_one_that_is_deactivating(both: Both) -> None:
    """What it left behind is still to be dealt with."""
    both.begin()
    for step in (*PREFERRED[:2], ("join", FOURTH, 0, None), PREFERRED[2]):
        both.do(step)
    both.admin.execute("UPDATE topology.instance SET state = 'DEACTIVATING' WHERE id = 'd'")
    both.sql.leave(LEADER)
    assert both.active() == [NEXT, THIRD]


@pytest.mark.proof
def test_a_difference_is_caught(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseMemory, "leave", lambda *_: None)
    with pytest.raises(AssertionError):
        test_both_say_the_same(both)
