"""Giving, changing and cancelling releases: each one transaction, with the job that sends it.

The job only says when: what is sent, and whether it still is, the row says (`release_rows`).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
from psycopg import Connection

from packhorse.db.pool import Lender
from packhorse.db.transactions import reading, writing
from packhorse.jobs.consumer import LONGEST_RETRY_DELAY, Retry
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.ledger.changing import JobChange, change_all
from packhorse_services.publisher.outbox import idempotency, release_rows
from packhorse_services.publisher.outbox.idempotency import KeyReused
from packhorse_services.publisher.outbox.release_rows import OPEN, Release
from packhorse_services.publisher.outbox.request import DistributionRequest
from packhorse_services.publisher.releases.contents import (
    Moment,
    ReleaseChange,
    ReleaseExists,
    TooManyReleases,
    changed,
    check,
    check_roots,
    ended,
    new_release,
    unknown,
)

MOST_OPEN = 10_000
"""Open releases of one publisher agent (R30)."""
_TOPICS = "packhorse/releases"
PATTERN = f"{_TOPICS}/*"
"""The topics of the jobs that send releases, one for each publisher agent."""


def topic_of(agent: str) -> str:
    """Return the topic of the jobs that send an agent's releases."""
    return f"{_TOPICS}/{agent}"


class Releases:
    """The releases of one publisher agent; for any thread. All raise `psycopg.Error`."""

    def __init__(
        self, pool: Lender, agent: str, check_targets: Callable[[Sequence[str]], None]
    ) -> None:
        """Take what raises `UnknownSubscriber` for a target that nobody knows."""
        self._pool, self._agent, self._check_targets = pool, agent, check_targets
        self._jobs = Jobs(pool.connection, "packhorse.publisher")

    def writing(self) -> AbstractContextManager[Connection]:
        """Give a transaction as the bookkeeper."""
        return writing(self._pool.connection)

    def give(
        self, request: DistributionRequest, moment: Moment, name: str = ""
    ) -> tuple[Release, bool]:
        """Plan a request; return the release, and whether its key had led to it before.

        Raises `PathRefused`, `KeyReused`, `ReleaseExists`, `ReleaseRefused`, `TooManyReleases`,
        `UnknownSubscriber`.
        """
        with self.writing() as connection:
            release = new_release(request, name)
            known = self._known(connection, request, moment, release)
            if known is not None:
                return known, True
            self._check_targets(request.targets)
            if release_rows.count_open(connection, self._agent) >= MOST_OPEN:
                raise TooManyReleases(f"{MOST_OPEN} releases are open; send or cancel some first")
            return self._planned(connection, release, moment), False

    def change(self, named: str, change: ReleaseChange) -> Release:
        """Change an open release; what FAILED is a DRAFT until it gets another moment.

        Raises `UnknownRelease`, `ReleaseEnded`, `PathRefused`, `ReleaseRefused`,
        `UnknownSubscriber`.
        """
        with self.writing() as connection:
            self._check_targets(change.targets or ())
            found = self._locked(connection, named, change.roots)
            if found.state == "SENT" and change.only_sends:
                return found  # a repeat of what was answered and not heard
            if found.state not in OPEN:
                raise ended(found)
            self._withdraw(connection, found)
            kept = None if found.state == "FAILED" else found.fires_at
            moment = change.moment if change.moves else kept
            return self._planned(connection, changed(found, change), moment)

    def cancel(self, named: str, roots: Sequence[str]) -> Release:
        """Let a release not go out; one that is cancelled already stays so.

        Raises `UnknownRelease`, `ReleaseEnded`, `PathRefused`.
        """
        with self.writing() as connection:
            found = self._locked(connection, named, roots)
            if found.state == "SENT":
                raise ended(found)
            if found.state != "CANCELLED":
                self._withdraw(connection, found)
                cancelled = replace(found, state="CANCELLED", job=None)
                release_rows.put(connection, self._agent, cancelled)
            return self._read(connection, found.release_id)

    def find(self, named: str) -> Release:
        """Return a release by its id or name. Raises `UnknownRelease`."""
        with reading(self._pool.connection) as connection:
            return self._read(connection, named)

    def page(
        self, state: str | None, above: tuple[datetime, str] | None, limit: int
    ) -> list[Release]:
        """Return releases by their moments, those without one last."""
        with reading(self._pool.connection) as connection:
            return release_rows.page(connection, self._agent, state, above, limit)

    def due(self, release_id: str, version: int) -> Release | None:
        """Return the release if this version of it is still to be sent.

        Raises `Retry` before its moment: somebody has repeated its job.
        """
        with reading(self._pool.connection) as connection:
            found = release_rows.read(connection, self._agent, [release_id]).get(release_id)
            now = release_rows.now(connection)
        if found is None or not found.is_due(version):
            return None
        if found.fires_at is not None and found.fires_at > now:
            after = min(found.fires_at - now, LONGEST_RETRY_DELAY)
            raise Retry("its moment has not come", after=after)
        return found

    def _known(
        self,
        connection: Connection,
        request: DistributionRequest,
        moment: Moment,
        release: Release,
    ) -> Release | None:
        """Take the request's key, or return the release that it has led to."""
        key = idempotency.key_of(request)
        fingerprint = request.fingerprint() + f"{moment} {release.name}".encode()
        if key is None or idempotency.reserve(
            connection, self._agent, key, fingerprint, release.release_id
        ):
            return None
        known = idempotency.find(connection, self._agent, [key]).get(key)
        if known is None or known.fingerprint != fingerprint:
            raise KeyReused("this Idempotency-Key was used for another request; use a new one")
        return self._read(connection, known.package_id)

    def _planned(self, connection: Connection, release: Release, moment: Moment) -> Release:
        """Write a release that is open, with a job for its moment."""
        check(release, has_moment=moment is not None)
        at = release_rows.now(connection) if moment == "now" else moment
        planned = replace(release, state="DRAFT", fires_at=None, job=None, reason="")
        if at is not None:
            number = self._give_job(connection, release, at)
            planned = replace(planned, state="SCHEDULED", fires_at=at, job=number)
        try:
            release_rows.put(connection, self._agent, planned)
        except psycopg.errors.UniqueViolation as error:
            raise ReleaseExists(f"an open release has the name {release.name!r}") from error
        return self._read(connection, release.release_id)

    def _give_job(self, connection: Connection, release: Release, at: datetime) -> int:
        properties: dict[str, Any] = {"release": release.release_id, "version": release.version}
        given = self._jobs.add_job(
            topic_of(self._agent), properties, connection=connection, ready_at=at, max_retries=-1
        )
        return given.job.number

    def _withdraw(self, connection: Connection, release: Release) -> None:
        """Remove the job if it waits; one that is under way finds another version."""
        if release.job is not None:
            change_all(connection, JobChange.REMOVE, [release.job])

    def _locked(self, connection: Connection, named: str, roots: Sequence[str]) -> Release:
        found = release_rows.find(connection, self._agent, named, lock=True)
        if found is None:
            raise unknown(named)
        check_roots(found, roots)
        return found

    def _read(self, connection: Connection, named: str) -> Release:
        found = release_rows.find(connection, self._agent, named)
        if found is None:
            raise unknown(named)
        return found
