"""Which events an instance reports, and when."""

import math

from packhorse.topology.events import EventFlow, EventKind
from tests.harness.topology.observations import seen
from tests.harness.topology.scripted import ME, cluster

INIT, CHANGING, CHANGED, PROPERTIES = EventKind


def reported(events: list) -> list[EventKind]:  # type: ignore[type-arg]
    return [event.kind for event in events]


def flow_with_view(*ids: str) -> EventFlow:
    flow = EventFlow()
    assert reported(flow.observe(seen(*ids), (), 0.0)) == [INIT]
    return flow


def test_the_first_agreed_view_is_init_and_comes_at_once() -> None:
    flow = EventFlow()
    assert flow.observe(seen(ME, settled=False), (), 0.0) == []
    assert flow.view is None
    (event,) = flow.observe(seen(ME), (), 0.1)
    assert (event.kind, event.old) == (INIT, None)
    assert event.new is not None
    assert event.new.local_instance.id == ME


def test_nothing_is_reported_while_all_is_the_same() -> None:
    flow = flow_with_view(ME, "a")
    assert flow.observe(seen(ME, "a"), (), 1.0) == []
    assert flow.elapsed(2.0) == []


def test_changing_comes_at_once_and_changed_after_the_delay() -> None:
    flow = flow_with_view(ME, "a")
    (changing,) = flow.observe(seen(ME, revision="2"), (), 10.0)
    assert (changing.kind, changing.new) == (CHANGING, None)
    assert changing.old == flow.view
    assert not flow.is_current(10.0)
    assert flow.due() == 13.0
    assert flow.elapsed(12.9) == []
    (changed,) = flow.elapsed(13.0)
    assert (changed.kind, changed.old) == (CHANGED, changing.old)
    assert flow.is_current(13.0)


def test_changes_within_the_delay_are_joined_and_do_not_prolong_it() -> None:
    flow = flow_with_view(ME)
    flow.observe(seen(ME, "a", revision="2"), (), 10.0)
    assert flow.observe(seen(ME, "a", "b", revision="3"), (), 12.0) == []
    (changed,) = flow.elapsed(13.0)
    assert changed.new is not None
    assert changed.new.local_cluster.ids == (ME, "a", "b")


def test_what_is_not_agreed_is_not_handed_out() -> None:
    flow = flow_with_view(ME)
    flow.observe(seen(ME, "a", revision="2", settled=False), (), 10.0)
    assert flow.due() == math.inf
    assert flow.elapsed(60.0) == []
    assert reported(flow.observe(seen(ME, "a", revision="2"), (), 61.0)) == [CHANGED]


def test_another_revision_is_a_change_even_if_it_looks_the_same() -> None:
    """Somebody came and went, or came back: whoever keeps state by instance must hear of it."""
    flow = flow_with_view(ME, "a")
    assert reported(flow.observe(seen(ME, "a", revision="3"), (), 1.0)) == [CHANGING]
    assert reported(flow.elapsed(4.0)) == [CHANGED]


def test_properties_alone_are_reported_at_once_and_never_while_changing() -> None:
    flow = flow_with_view(ME, "a")
    load = {"a": {"load": "1"}}
    assert reported(flow.observe(seen(ME, "a", properties=load), (), 1.0)) == [PROPERTIES]
    flow.observe(seen(ME, revision="2"), (), 2.0)
    assert flow.observe(seen(ME, revision="2", properties={ME: {"n": "v"}}), (), 3.0) == []
    (changed,) = flow.elapsed(5.0)
    assert changed.kind is CHANGED
    assert changed.new is not None
    assert changed.new.local_instance.properties == {"n": "v"}


def test_a_view_ends_when_it_runs_out() -> None:
    flow = EventFlow()
    flow.observe(seen(ME, until=10.0), (), 0.0)
    assert flow.due() == 10.0
    assert flow.is_current(9.9)
    assert not flow.is_current(10.0)
    assert reported(flow.elapsed(10.0)) == [CHANGING]
    assert flow.observe(seen(ME, until=30.0), (), 12.0) == []
    assert reported(flow.elapsed(13.0)) == [CHANGED]


def test_nothing_is_due_again_that_was_looked_at_in_vain() -> None:
    """An agreed view that ran out during the delay waits for the next heartbeat."""
    flow = flow_with_view(ME)
    flow.observe(seen(ME, revision="2", until=11.0), (), 10.0)
    assert flow.due() == 13.0
    assert flow.elapsed(13.0) == []
    assert flow.due() == math.inf


def test_without_a_membership_there_is_no_view() -> None:
    flow = flow_with_view(ME)
    assert reported(flow.lose(1.0)) == [CHANGING]
    assert flow.lose(2.0) == []
    assert flow.acknowledgement() is None
    assert flow.view is not None


def test_a_revision_is_acknowledged_once_the_old_view_has_ended() -> None:
    flow = flow_with_view(ME)
    assert flow.acknowledgement() == "1"
    assert reported(flow.observe(seen(ME, revision="2", settled=False), (), 1.0)) == [CHANGING]
    assert flow.acknowledgement() == "2"
    flow.observe(seen(), (), 2.0)
    assert flow.acknowledgement() is None


def test_other_remote_clusters_are_a_change() -> None:
    flow = flow_with_view(ME)
    far, near = cluster("x", "y", name="far"), cluster("n", name="a near one")
    assert reported(flow.observe(seen(ME), (far,), 1.0)) == [CHANGING]
    (changed,) = flow.observe(seen(ME), (far, near), 5.0)
    assert changed.new is not None
    assert [one.id for one in changed.new.clusters] == ["cluster-1", "a near one", "far"]
    assert flow.observe(seen(ME), (near, far), 6.0) == []
    newer = cluster("x", "y", name="far", properties={"y": {"load": "2"}})
    assert reported(flow.observe(seen(ME), (near, newer), 7.0)) == [PROPERTIES]


def test_a_remote_cluster_can_t_pass_for_the_own_one() -> None:
    flow = EventFlow()
    (event,) = flow.observe(seen(ME), (cluster("stranger"),), 0.0)
    assert event.new is not None
    assert event.new.remote_clusters == ()


def test_without_a_delay_both_events_come_together_in_order() -> None:
    flow = EventFlow(0.0)
    flow.observe(seen(ME), (), 0.0)
    assert reported(flow.observe(seen(ME, "a", revision="2"), (), 1.0)) == [CHANGING, CHANGED]
