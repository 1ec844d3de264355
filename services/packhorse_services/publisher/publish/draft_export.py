"""Requests to drafts: packages that lack only their numbers, all of one snapshot (R6)."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Protocol

import psycopg
from psycopg import Connection

from packhorse.content.node import Node
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import act_as
from packhorse.errors import PackhorseError
from packhorse.packages.build import ShallowReader
from packhorse.runtime.metrics import PUBLISHER_BUILD_SECONDS, PUBLISHER_PACKAGE_BYTES
from packhorse_services.publisher.outbox.request import Draft, Pending
from packhorse_services.publisher.publish.first_look import FirstLook, is_small
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.prepared import FAR, FAR_UNDER_LOCK, PreparedChecks

logger = logging.getLogger(__name__)

GROUP_BYTES = 16 * 1024 * 1024

Exported = Mapping[Pending, Draft | Exception]
"""What became of requests, in their order: a draft, or the reason why there is none."""


class Drafts(Protocol):
    """Where the holder of the append lock gets the packages of a group from."""

    def drafts(
        self, connection: Connection, look: FirstLook, fresh: Sequence[Pending], savepoints: bool
    ) -> dict[Pending, Draft]:
        """Return what of `fresh` goes out now, in order; the others are refused, or wait.

        Runs in the lock's transaction, which began with `look`, as the bookkeeper. Raises
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
        self, connection: Connection, look: FirstLook, fresh: Sequence[Pending], savepoints: bool
    ) -> dict[Pending, Draft]:
        """Export in the lock's transaction itself."""
        nodes, far = look.nodes, FAR_UNDER_LOCK
        return drafts_of(self.export(connection, fresh, nodes, savepoints=savepoints, far=far))

    def export(
        self,
        connection: Connection,
        group: Sequence[Pending],
        found: Mapping[str, Node | None] = MappingProxyType({}),
        *,
        savepoints: bool,
        far: int = FAR,
    ) -> Exported:
        """Export the first of `group`, until their bodies are `group_bytes` together.

        A request at fault has its own exception here, with `savepoints` also one whose statement
        the database refused. `far` is how many packages may be looked at for the prepared ones,
        `found` is what was read of small requests. Is called as the bookkeeper, who also goes on.
        Raises `psycopg.Error`.
        """
        obstacles = self._checks.obstacles(connection, group, far)
        # What the database refuses is to cost one request alone, so then each is read by itself.
        small = set() if savepoints else {one for one in group if is_small(one.request)}
        paths = [path for one in group if one in small for path in one.request.paths]
        reader = ShallowReader(connection, paths, found)
        readers = {one: reader if one in small else None for one in group}
        reads = len(small) < len(group) or not set(paths) <= found.keys()
        if reads:
            act_as(connection, EXPORTER)
        with PUBLISHER_BUILD_SECONDS.time():
            exported = dict(self._first(connection, readers, obstacles, savepoints=savepoints))
        if reads:
            act_as(connection, BOOKKEEPER)
        return exported

    def _first(
        self,
        connection: Connection,
        readers: Mapping[Pending, ShallowReader | None],
        obstacles: Mapping[Pending, Exception],
        *,
        savepoints: bool,
    ) -> Iterator[tuple[Pending, Draft | Exception]]:
        size = 0
        for pending, reader in readers.items():
            obstacle = obstacles.get(pending)
            made = obstacle or self._draft(connection, pending, reader, savepoints=savepoints)
            yield pending, made
            size += 0 if isinstance(made, Exception) else made.message.entry.body_length
            if size > self._group_bytes:
                return

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


def drafts_of(exported: Exported) -> dict[Pending, Draft]:
    """Refuse the requests that are at fault, and return the drafts of the others."""
    drafts: dict[Pending, Draft] = {}
    for pending, made in exported.items():
        if isinstance(made, Exception):
            pending.fail(made)
        else:
            drafts[pending] = made
    return drafts
