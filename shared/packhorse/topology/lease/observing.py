"""What the database's state means to one instance."""

from typing import Any

from packhorse.topology.lease.store import ClusterState, Incarnation, InstanceEntry, InstanceState
from packhorse.topology.membership import Observation
from packhorse.topology.view import ClusterView, InstanceDescription


def own_entry(state: ClusterState, who: Incarnation) -> InstanceEntry | None:
    """Return the entry of this incarnation if it is active."""
    found = (entry for entry in _in_state(state, InstanceState.ACTIVE) if entry.who == who)
    return next(found, None)


def observe(
    state: ClusterState, acknowledged_by_all: bool, who: Incarnation, valid_until: float
) -> Observation:
    """Return what an active instance sees: the first to have joined leads."""
    active = _in_state(state, InstanceState.ACTIVE)
    instances = tuple(
        InstanceDescription(
            entry.who.instance_id,
            state.cluster_id,
            is_leader=place == 0,
            is_local=entry.who == who,
            properties=entry.properties,
        )
        for place, entry in enumerate(active)
    )
    settled = is_final(state) and acknowledged_by_all
    view = ClusterView(state.cluster_id, instances)
    return Observation(view, str(state.seq), settled, valid_until)


def is_final(state: ClusterState) -> bool:
    """Return whether what leaving instances left behind is dealt with."""
    return not _in_state(state, InstanceState.DEACTIVATING)


def cluster_document(state: ClusterState, who: Incarnation) -> dict[str, Any]:
    """Return the discovery-lite document; `me` is None while it takes no part."""
    own = own_entry(state, who)
    return {
        "seq": state.seq,
        "final": is_final(state),
        "id": state.cluster_id,
        "me": None if own is None else own.number,
        "active": _numbers(state, InstanceState.ACTIVE),
        "deactivating": _numbers(state, InstanceState.DEACTIVATING),
        "inactive": list(state.inactive),
    }


def _in_state(state: ClusterState, wanted: InstanceState) -> list[InstanceEntry]:
    return [entry for entry in state.entries if entry.state is wanted]


def _numbers(state: ClusterState, wanted: InstanceState) -> list[int]:
    return sorted(entry.number for entry in _in_state(state, wanted))
