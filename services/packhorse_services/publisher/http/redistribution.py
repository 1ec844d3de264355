"""Distributing again what a subscriber gave up on: a new request of the same paths (R18).

It goes to all, or to those that the first one was for.

An entry is distributed again once, unless it is asked for by name: two operators who see the same
error queue make no two packages of it.
"""

import hashlib
import logging
from dataclasses import dataclass

import psycopg
from psycopg_pool import PoolTimeout

from packhorse.errors import Permanent
from packhorse.packages.build import PathRefused
from packhorse.packages.scope import first_outside
from packhorse.runtime import tracing
from packhorse.runtime.auth import Principal
from packhorse.wire.actions import removes
from packhorse.wire.messages import PackageEntry
from packhorse_services.publisher.http.collaborators import Collaborators
from packhorse_services.publisher.http.submission import publish
from packhorse_services.publisher.outbox.request import Accepted, DistributionRequest
from packhorse_services.publisher.outcomes.error_queue import ErrorQueues, FailedPackage

logger = logging.getLogger(__name__)


class AlreadyRedistributed(Permanent):
    """The entry was distributed again before."""

    def __init__(self, failed: FailedPackage) -> None:
        super().__init__(
            f"the entry at offset {failed.offset} was distributed again before, as "
            f"{failed.redistributed_as}; GET /distributions/{failed.redistributed_as} says what "
            "became of that, and `again` makes another one"
        )
        self.package_id = failed.redistributed_as


@dataclass(frozen=True, slots=True)
class Redistribution:
    """Who wants what of a subscriber's error queue."""

    publisher: Collaborators
    subscriber: str
    caller: Principal
    again: bool = False
    awaited: bool = False

    async def of(self, failed: FailedPackage, key: str | None = None) -> Accepted:
        """Return the package that carries the paths of an entry again.

        Raises `PathsUnknown`, `PathRefused`, `AlreadyRedistributed`, and what `publish` raises.
        """
        package = failed.to_distribute()
        outside = first_outside((*package.paths, *package.deep_paths), self.caller.roots)
        if outside is not None:
            raise PathRefused(outside, self.caller.roots)
        requested = self._requested(package, key or self._key(failed))
        if failed.redistributed_as and not self.again:
            repeated = await self.publisher.admission.repeated(requested) if key else None
            if repeated is None:
                raise AlreadyRedistributed(failed)
            return repeated
        accepted = await publish(self.publisher, requested)
        await _note(self.publisher.errors, self.subscriber, failed, accepted.package_id)
        return accepted

    def _requested(self, package: PackageEntry, key: str | None) -> DistributionRequest:
        return DistributionRequest(
            action=package.action,
            paths=package.paths,
            deep_paths=package.deep_paths,
            targets=package.targets,
            caller=self.caller.name,
            roots=self.caller.roots,
            idempotency_key=key,
            only_if_absent=removes(package.action),
            awaited=self.awaited,
            traceparent=tracing.traceparent(),
        )

    def _key(self, failed: FailedPackage) -> str | None:
        """Return a key for who gives none, so that two requests at a time make one package.

        With a space, which callers' own keys can't have.
        """
        if self.again:
            return None
        entry = (self.subscriber, failed.journal_id, failed.offset, failed.recorded_us)
        return f"redistribute {hashlib.sha256(repr(entry).encode()).hexdigest()}"


async def _note(
    errors: ErrorQueues, subscriber: str, failed: FailedPackage, package_id: str
) -> None:
    """Note what carries the paths again; the package is published, whatever happens here (R5)."""
    try:
        await errors.redistributed(subscriber, failed, package_id)
    except (psycopg.Error, PoolTimeout) as error:
        logger.warning(
            "a redistribution can't be noted in the error queue",
            extra={"subscriber": subscriber, "package_id": package_id, "error": str(error)},
        )
