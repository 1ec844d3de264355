"""Differences between views."""

from packhorse.topology.diff import LeaderChange, PropertyChange, TopologyDiff
from packhorse.topology.view import TopologyView
from tests.harness.topology.observations import topology
from tests.harness.topology.scripted import ME, cluster


def ids(instances: tuple) -> list[str]:  # type: ignore[type-arg]
    return [one.id for one in instances]


def test_added_and_removed_in_their_order() -> None:
    diff = TopologyDiff(topology("a", "b", ME), topology("b", ME, "d", "c"))
    assert ids(diff.added()) == ["d", "c"]
    assert ids(diff.removed()) == ["a"]


def test_property_changes_name_what_came_went_and_differs() -> None:
    old = topology(ME, "a", properties={"a": {"x": "1", "gone": "1", "same": "1"}})
    new = topology(ME, "a", properties={"a": {"x": "2", "new": "1", "same": "1"}})
    (change,) = TopologyDiff(old, new).property_changes
    assert change == PropertyChange(new.instances[1], ("new",), ("gone",), ("x",))
    assert TopologyDiff(new, new).property_changes == ()


def test_leader_changes_of_all_clusters() -> None:
    old = TopologyView(cluster("a", ME, local=ME), (cluster("x", name="far"),))
    new = TopologyView(cluster(ME, local=ME), (cluster("y", name="near"),))
    assert set(TopologyDiff(old, new).leader_changes) == {
        LeaderChange("cluster-1", "a", ME),
        LeaderChange("far", "x", None),
        LeaderChange("near", None, "y"),
    }


def test_nothing_stands_for_a_topology_without_instances() -> None:
    view = topology(ME, "a")
    assert TopologyDiff(None, view).added() == view.instances
    assert TopologyDiff(view, None).removed() == view.instances
    assert TopologyDiff(None, None).leader_changes == ()


def test_an_instance_with_the_id_of_another_clusters_is_not_the_same() -> None:
    old = TopologyView(cluster(ME, local=ME), (cluster("x", name="far"),))
    new = TopologyView(cluster(ME, "x", local=ME))
    diff = TopologyDiff(old, new)
    assert ids(diff.added()) == ids(diff.removed()) == ["x"]
