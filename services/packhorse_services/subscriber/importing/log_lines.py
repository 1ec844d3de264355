"""What a subscription's log says: what failed, what goes on, what was taken out of the queue."""

import logging
from collections.abc import Sequence
from itertools import groupby

from packhorse.wire.messages import Status
from packhorse_services.subscriber.announce.statuses import Decision
from packhorse_services.subscriber.importing.attempts import Head
from packhorse_services.subscriber.journal.grouping import Group

logger = logging.getLogger(__name__)


def group_failed(agent: str, group: Group, error: Exception) -> None:
    """Say that several packages together could not be imported."""
    logger.warning(
        "a group failed, its packages are tried alone",
        extra={"agent": agent, "packages": len(group.arrivals)},
        exc_info=error,
    )


def failed(agent: str, head: Head, error: Exception, *, counts: bool) -> None:
    """Say that the package in front could not be imported, and whether that is its own fault."""
    logger.warning(
        "a package failed to import",
        extra={**_named(agent, head), "counts": counts},
        exc_info=error,
    )


def imported(agent: str, head: Head, now_ms: int) -> None:
    """Say that a package is imported, if it had failed: of the others there are too many."""
    if head.blocked_since_ms:
        logger.info(
            "a package that had failed is imported",
            extra={
                **_named(agent, head),
                "blocked_s": max(0, now_ms - head.blocked_since_ms) // 1000,
            },
        )


def removed(agent: str, decisions: Sequence[Decision]) -> None:
    """Say what was taken out of the queue without import, and why: a line for each cause."""
    for _, together in groupby(decisions, _cause):
        same = list(together)
        first = same[0]
        told = {"attempts": first.attempts, "command_id": first.command_id, "reason": first.reason}
        logger.log(
            logging.WARNING if first.status is Status.REMOVED_FAILED else logging.INFO,
            "packages were taken out of the queue",
            extra={
                "agent": agent,
                "status": first.status.value,
                "packages": len(same),
                "first_offset": first.mark.offset,
                "last_offset": same[-1].mark.offset,
                **{name: value for name, value in told.items() if value},
            },
        )


def _cause(decision: Decision) -> tuple[str, str]:
    return decision.command_id, decision.reason


def _named(agent: str, head: Head) -> dict[str, str | int]:
    return {
        "agent": agent,
        "offset": head.mark.offset,
        "package_id": head.mark.package_id,
        "attempts": head.attempts,
    }
