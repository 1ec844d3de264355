"""Requests to drafts: packages that lack only their numbers, all of one snapshot (R6)."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

import psycopg
from psycopg import Connection

from packhorse.db.metadata import EXPORTER
from packhorse.db.roles import act_as
from packhorse.errors import PackhorseError
from packhorse.packages.build import ShallowReader
from packhorse.runtime.metrics import PUBLISHER_BUILD_SECONDS, PUBLISHER_PACKAGE_BYTES
from packhorse.wire.actions import exports
from packhorse_services.publisher.outbox.append_state import AppendState
from packhorse_services.publisher.outbox.request import DistributionRequest, Draft, Pending
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.prepared import FAR, FAR_UNDER_LOCK, PreparedChecks

logger = logging.getLogger(__name__)

GROUP_BYTES = 16 * 1024 * 1024
_SMALL_PATHS = 10

Exported = Mapping[Pending, Draft | Exception]
"""What became of requests, in their order: a draft, or the reason why there is none."""


class Drafts(Protocol):
    """Where the holder of the append lock gets the packages of a group from."""

    def drafts(
        self, connection: Connection, state: AppendState, fresh: Sequence[Pending], savepoints: bool
    ) -> dict[Pending, Draft]:
        """Return what of `fresh` goes out now, in order; the others are refused, or wait.

        Runs in the lock's transaction, of which `state` is the first thing read. Raises
        `psycopg.Error`: then it may be asked again in another transaction, with `savepoints`.
        """
        ...


class DraftExporter:
    """Exports requests from the snapshot of the caller's transaction."""

    def __init__(self, packer: Packer, *, group_bytes: int = GROUP_BYTES) -> None:
        self._packer, self._group_bytes = packer, group_bytes
        self._checks = PreparedChecks()

    @property
    def steps(self) -> int:
        """How far the exports have come: it grows while one of them goes on."""
        return self._packer.steps

    def drafts(
        self, connection: Connection, _: AppendState, fresh: Sequence[Pending], savepoints: bool
    ) -> dict[Pending, Draft]:
        """Export in the lock's transaction itself."""
        return drafts_of(self.export(connection, fresh, savepoints=savepoints, far=FAR_UNDER_LOCK))

    def export(
        self, connection: Connection, group: Sequence[Pending], *, savepoints: bool, far: int = FAR
    ) -> Exported:
        """Export the first of `group`, until their bodies are `group_bytes` together.

        A request at fault has its own exception here, with `savepoints` also one whose statement
        the database refused. `far` is how many packages may be looked at for the prepared ones.
        Is called as the bookkeeper. Raises `psycopg.Error`.
        """
        exported: dict[Pending, Draft | Exception] = {}
        size = 0
        obstacles = self._checks.obstacles(connection, group, far)
        act_as(connection, EXPORTER)
        # What the database refuses is to cost one request alone, so then each is read by itself.
        ahead = {one: None for one in group if not savepoints and _is_small(one.request)}
        reader = ShallowReader(connection, (path for one in ahead for path in one.request.paths))
        with PUBLISHER_BUILD_SECONDS.time():
            for pending in group:
                obstacle = obstacles.get(pending)
                made = obstacle or self._draft(
                    connection,
                    pending,
                    reader if pending in ahead else None,
                    savepoints=savepoints,
                )
                exported[pending] = made
                size += 0 if isinstance(made, Exception) else made.message.entry.body_length
                if size > self._group_bytes:
                    break
        return exported

    def _draft(
        self,
        connection: Connection,
        pending: Pending,
        reader: ShallowReader | None,
        *,
        savepoints: bool,
    ) -> Draft | Exception:
        package_id = self._packer.new_package_id()
        try:
            with connection.transaction() if savepoints else nullcontext():
                draft = self._packer.draft(connection, pending.request, package_id, reader)
        except Exception as error:
            if connection.closed or (isinstance(error, psycopg.Error) and not savepoints):
                raise
            if not isinstance(error, PackhorseError):
                logger.exception("an export failed", extra={"package_id": package_id})
            return error
        PUBLISHER_PACKAGE_BYTES.observe(draft.message.entry.body_length)
        return draft


def _is_small(request: DistributionRequest) -> bool:
    """Return whether a request is read together with others."""
    single = exports(request.action) and not (request.deep_paths or request.prepared)
    return single and len(request.paths) <= _SMALL_PATHS


def drafts_of(exported: Exported) -> dict[Pending, Draft]:
    """Refuse the requests that are at fault, and return the drafts of the others."""
    drafts: dict[Pending, Draft] = {}
    for pending, made in exported.items():
        if isinstance(made, Exception):
            pending.fail(made)
        else:
            drafts[pending] = made
    return drafts
