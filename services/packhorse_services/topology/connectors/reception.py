"""Whether an announcement fits the own cluster, and what of it is kept."""

from dataclasses import replace

from packhorse.errors import Permanent
from packhorse.topology.announcements import Announcement
from packhorse.topology.routing import without
from packhorse.topology.view import ClusterView


class ClaimsOurs(Permanent):
    """A peer announces as its own what belongs to this cluster."""


def is_loop(announcement: Announcement, own: ClusterView) -> bool:
    """Return whether the sender is an instance of the own cluster. Raises `ClaimsOurs`.

    The instance must be one that the own database knows: whoever else names our cluster as its
    own is an impostor, or works on a copy of our database.
    """
    if announcement.local_cluster.id != own.id:
        return False
    if announcement.owner in own.ids:
        return True
    raise ClaimsOurs(
        f"{announcement.owner} announces cluster {own.id}, which is ours, and is no instance of it:"
        " is its database a copy of ours?"
    )


def kept_of(announcement: Announcement, own: ClusterView) -> Announcement:
    """Return what to believe: no news that came through ourselves. Raises `ClaimsOurs`."""
    if taken := set(announcement.local_cluster.ids) & set(own.ids):
        raise ClaimsOurs(f"{min(taken)} is an instance of our cluster, not of another one")
    foreign = tuple(route for route in announcement.further if own.id not in route.path)
    return replace(announcement, further=without(foreign, own))
