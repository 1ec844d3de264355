"""The documents of a distribution: its summary in lists, and the whole one."""

from collections.abc import Sequence
from typing import Any

from packhorse.runtime.moments import time_of
from packhorse_services.publisher.distributions.delivery_status import DeliveryTo
from packhorse_services.publisher.distributions.distribution_query import Distribution
from packhorse_services.publisher.distributions.schemas import (
    DeliveryDocument,
    DistributionDocument,
    DistributionSummary,
    Links,
)
from packhorse_services.publisher.outcomes.distribution_state import DistributionState


def distribution_summary(found: Distribution, state: DistributionState) -> DistributionSummary:
    """Return a distribution without its part at each subscriber."""
    return DistributionSummary(**_fields(found, state))


def distribution_document(
    found: Distribution, state: DistributionState, deliveries: Sequence[DeliveryTo]
) -> DistributionDocument:
    """Return a distribution and what became of it at each subscriber."""
    return DistributionDocument(
        **_fields(found, state),
        nodes=found.entry.node_count,
        subscribers=[_delivery(one) for one in deliveries],
    )


def _fields(found: Distribution, state: DistributionState) -> dict[str, Any]:
    entry = found.entry
    return {
        "id": entry.package_id,
        "package_id": entry.package_id,
        "state": state.value,
        "offset": found.offset,
        "action": entry.action.value,
        "paths": list(entry.paths),
        "deep_paths": list(entry.deep_paths),
        "range_from": entry.range_from,
        "range_to": entry.range_to,
        "targets": list(entry.targets),
        "user": entry.user,
        "size": entry.body_length,
        "accepted_at": found.accepted_at,
        "links": Links(self=f"/distributions/{entry.package_id}"),
    }


def _delivery(one: DeliveryTo) -> DeliveryDocument:
    return DeliveryDocument(
        subscriber=one.subscriber,
        state=one.state.value,
        stale=one.stale,
        attempts=one.attempts,
        reason=one.reason,
        next_attempt_at=time_of(one.next_attempt_ms),
        since=time_of(one.since_ms),
        imported_by=time_of(one.imported_by_ms),
    )
