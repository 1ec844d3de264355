"""The member of a cluster of leases, where the database's answers are late, lost or cut off."""

from collections.abc import Callable

import pytest

from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.membership import StoreUnavailable
from tests.harness.topology.driven import LeaseMemoryCluster, ids, settled, step
from tests.harness.topology.lease_memory import LeaseMemory, LeaseMemorySession


class Site(LeaseMemoryCluster):
    """Knows the session of each member, and can set the database's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0
        self.database = LeaseMemory(lambda: self.clock.monotonic() + self.ahead_s)
        self.sessions: dict[str, LeaseMemorySession] = {}

    def member(self, instance_id: str) -> LeaseMember:
        member = super().member(instance_id)
        self.sessions[instance_id] = self.database.sessions[-1]
        return member

    def members(self, names: str) -> list[LeaseMember]:
        members = [self.member(name) for name in names]
        settled(self, *members)
        self.beats(6, *members)
        return members

    def beats(self, rounds: int, *members: LeaseMember) -> None:
        for _ in range(rounds):
            self.pass_time(2)
            for member in members:
                step(member)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_lost_answer_to_joining_is_no_second_joining(site: Site) -> None:
    a = site.member("a")
    site.sessions["a"].answers_lost = True
    with pytest.raises(StoreUnavailable):
        a.beat({"x": "1"})
    with pytest.raises(StoreUnavailable):
        a.beat({"x": "1"})
    site.sessions["a"].answers_lost = False
    assert a.beat({"x": "1"}).revision == "1"


def test_a_lost_answer_to_a_renewal_costs_no_lease_and_no_property(site: Site) -> None:
    a, b = site.members("ab")
    site.sessions["b"].answers_lost = True
    with pytest.raises(StoreUnavailable):
        b.beat({"x": "new"})
    site.sessions["b"].answers_lost = False
    seen = b.beat({"x": "new"})
    assert seen.settled
    view = step(a).view
    assert view is not None
    assert view.instances[1].properties == {"x": "new"}


def test_a_property_that_is_set_back_after_a_lost_answer_is_written_again(site: Site) -> None:
    a, b = site.members("ab")
    b.beat({"x": "old"})
    site.sessions["b"].answers_lost = True
    with pytest.raises(StoreUnavailable):
        b.beat({"x": "new"})
    site.sessions["b"].answers_lost = False
    b.beat({"x": "old"})
    view = step(a).view
    assert view is not None
    assert view.instances[1].properties == {"x": "old"}


def test_a_view_runs_out_a_lease_after_its_renewal_was_sent(site: Site) -> None:
    (a,) = site.members("a")
    sent_at = site.clock.monotonic()
    site.sessions["a"].before = lambda _step: site.clock.advance(3)
    assert a.beat({}).valid_until == sent_at + 10


def test_a_view_has_run_out_before_the_database_lets_anyone_retire_its_instance(
    site: Site,
) -> None:
    a, b = site.members("ab")
    valid_until = step(a).valid_until
    while "a" in ids(step(b)):
        site.pass_time(0.5)
    assert site.clock.monotonic() >= valid_until


def test_one_expiry_seen_by_two_is_one_transition(site: Site) -> None:
    a, b, c = site.members("abc")
    site.kill(a)
    before = site.database.seq
    site.beats(4, b, c)

    def b_is_faster(name: str) -> None:
        if name == "retire":
            site.sessions["c"].before = lambda _step: None
            step(b)

    site.sessions["c"].before = b_is_faster
    site.beats(3, c, b)
    assert site.database.seq == before + 1
    assert ids(settled(site, b, c)) == ("b", "c")


def test_a_lease_that_has_run_out_is_renewed_while_nobody_has_retired_its_holder(
    site: Site,
) -> None:
    a, b = site.members("ab")
    revision = step(a).revision
    site.pass_time(11)  # both were silent: neither may judge
    assert ids(step(b)) == ("a", "b")
    seen = step(a)
    assert (seen.revision, seen.settled) == (revision, True)


def test_one_that_was_retired_does_not_know_it_and_comes_back_as_the_last(site: Site) -> None:
    a, b = site.members("ab")
    site.beats(7, b)
    assert ids(step(a)) == ("b", "a")
    assert not step(a).settled


def test_a_judge_that_is_paused_before_it_judges_judges_nobody(site: Site) -> None:
    _a, b, c = site.members("abc")
    site.beats(4, b, c)  # a is silent

    def pause(name: str) -> None:
        if name == "retire":
            site.pass_time(60)

    site.sessions["b"].before = pause
    site.pass_time(4)
    step(b)
    site.sessions["b"].before = lambda _step: None
    assert [row.who.instance_id for row in site.database.active] == ["a", "b", "c"]


def test_renewals_that_a_crash_of_the_database_took_back_cost_nobody_a_view(site: Site) -> None:
    a, b = site.members("ab")
    valid_until = step(a).valid_until
    for name in "ab":  # a crash so short that only the sessions show it
        site.database.rows[name].lease_end -= 8
        site.sessions[name].number += 1
    while "a" in ids(step(b)):  # and a is cut off since
        site.pass_time(1)
    assert site.clock.monotonic() >= valid_until


@pytest.mark.parametrize("jump", [30.0, 3600.0, -30.0, -3600.0])
def test_a_database_clock_that_is_set_costs_no_leader(site: Site, jump: float) -> None:
    members = site.members("abc")
    revision = step(members[0]).revision
    site.ahead_s = jump
    site.beats(12, *reversed(members))
    assert {step(member).revision for member in members} == {revision}


def test_a_clock_that_was_set_back_does_not_keep_the_dead(site: Site) -> None:
    a, b = site.members("ab")
    site.kill(a)
    site.ahead_s = -3600.0
    site.beats(8, b)
    assert ids(step(b)) == ("b",)


def test_a_view_is_not_final_while_a_backlog_is_left(site: Site) -> None:
    a, b = site.members("ab")
    site.kill(a)
    site.database.completes = lambda _who: False
    site.beats(10, b)
    seen = step(b)
    assert (ids(seen), seen.settled) == (("b",), False)
    assert b.cluster_document() == {
        "seq": 3,
        "final": False,
        "id": "cluster",
        "me": 2,
        "active": [2],
        "deactivating": [1],
        "inactive": [],
    }
    site.database.completes = lambda _who: True
    assert settled(site, b).settled
    document = b.cluster_document()
    assert document is not None
    assert (document["seq"], document["final"], document["inactive"]) == (4, True, [1])


def test_who_has_not_dealt_with_its_old_self_is_not_in_yet(site: Site) -> None:
    a, b = site.members("ab")
    site.kill(a)
    site.database.completes = lambda _who: False
    again = site.member("a")
    for _ in range(10):
        site.pass_time(2)
        step(b)
        assert again.beat({}).view is None
    site.database.completes = lambda _who: True
    assert ids(settled(site, b, again)) == ("b", "a")


def test_who_retires_an_instance_of_the_same_number_knows_it_again(site: Site) -> None:
    a, b = site.members("ab")
    a.leave()
    again = site.member("a")
    settled(site, b, again)
    document = again.cluster_document()
    assert document is not None
    assert (document["me"], document["active"]) == (1, [1, 2])


def test_the_long_gone_are_forgotten(site: Site) -> None:
    a, b = site.members("ab")
    a.leave()
    site.pass_time(7 * 24 * 3600 + 1)
    settled(site, b, site.member("c"))
    assert set(site.database.rows) == {"b", "c"}


def test_a_news_worth_acknowledging_ends_the_wait(site: Site) -> None:
    a = site.member("a")
    seen = a.beat({})
    a.wait(0)
    a.acknowledge("0")
    assert not site.sessions["a"].hinted
    a.acknowledge(seen.revision)
    assert site.sessions["a"].hinted
    a.wait(0)
    a.acknowledge(seen.revision)
    assert not site.sessions["a"].hinted


class NoJudgement:
    """A broken build: judges without having watched."""

    def __init__(self, _lease_s: float) -> None: ...

    def renewed(self, _renewal: object) -> None: ...

    def may_judge(self, _now: float) -> bool:
        return True

    def forget(self) -> None: ...


@pytest.mark.proof
@pytest.mark.parametrize(
    "check",
    [
        lambda site: test_a_database_clock_that_is_set_costs_no_leader(site, 3600.0),
        test_a_lease_that_has_run_out_is_renewed_while_nobody_has_retired_its_holder,
        test_renewals_that_a_crash_of_the_database_took_back_cost_nobody_a_view,
    ],
)
def test_a_build_that_judges_at_once_is_caught(
    site: Site, check: Callable[[Site], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse.topology.lease.member.Judgement", NoJudgement)
    with pytest.raises(AssertionError):
        check(site)
