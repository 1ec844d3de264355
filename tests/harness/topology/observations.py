"""Observations and views as literals of tests."""

from collections.abc import Mapping

from packhorse.topology.membership import Observation
from packhorse.topology.view import TopologyView
from tests.harness.topology.scripted import ME, cluster

FAR_AHEAD = 1e9


def seen(
    *ids: str,
    revision: str = "1",
    settled: bool = True,
    until: float = FAR_AHEAD,
    properties: Mapping[str, Mapping[str, str]] | None = None,
) -> Observation:
    """Return what a heartbeat saw; without ids there is no view."""
    view = cluster(*ids, local=ME, properties=properties) if ids else None
    return Observation(view, revision if ids else "", settled, until)


def topology(*ids: str, properties: Mapping[str, Mapping[str, str]] | None = None) -> TopologyView:
    """Return a view of the own cluster alone."""
    return TopologyView(cluster(*ids, local=ME, properties=properties))
