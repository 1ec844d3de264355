"""Who can do jobs: the live instances, and whoever leads, with the topics that each does."""

from collections.abc import Mapping

from packhorse.jobs.consumers import Reach, reaches_in
from packhorse.jobs.scheduling.scheduler import DUTY
from packhorse.jobs.store.given import LEADER
from packhorse.topology.discovery import Discovery
from packhorse.topology.own_cluster import first_with

Doers = Mapping[str, Reach]
"""What each instance of the own cluster does, by its id; `LEADER` is there if somebody leads."""


def live_doers(discovery: Discovery) -> Doers | None:
    """Return the doers by the current view; None where there is none."""
    view = discovery.current_view()
    if view is None:
        return None
    doers = reaches_in(view)
    leader = first_with(view, DUTY)
    return doers if leader is None else {**doers, LEADER: doers[leader.id]}


def is_consumed(topic: str, only_on: str | None, doers: Doers) -> bool:
    """Tell whether somebody does jobs of a topic; with `only_on`, whether that one does."""
    if only_on:
        return only_on in doers and doers[only_on].covers(topic)
    return any(reach.covers(topic) for reach in doers.values())
