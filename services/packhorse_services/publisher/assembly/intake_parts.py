"""Puts together what exports the packages of requests and publishes them."""

from dataclasses import dataclass, replace
from functools import partial

from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock
from packhorse.packages.limits import LIMITS, PackageLimits
from packhorse.topology.own_cluster import OwnCluster
from packhorse_services.publisher.outbox.append_lock import AppendLock, lock_connection
from packhorse_services.publisher.outbox.journal_appender import JournalAppender
from packhorse_services.publisher.publish.draft_export import DraftExporter
from packhorse_services.publisher.publish.early_export import EarlyPublishing, early_connection
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.publishing import JournalPatience, Publishing
from packhorse_services.publisher.publish.request_intake import RequestIntake
from packhorse_services.publisher.settings import Settings

_EARLY_BYTES = 2 * 1024 * 1024
"""A group that was exported early is written under the lock, so it is kept small."""


def patience_of(settings: Settings) -> JournalPatience:
    """Return how much may wait in the outbox while the journal is away."""
    return JournalPatience(
        outbox_packages=settings.outbox_packages, outbox_age_s=settings.outbox_age_s
    )


def limits_of(settings: Settings) -> PackageLimits:
    """Return how large a package may be."""
    return replace(LIMITS, content_bytes=settings.max_package_bytes)


def request_intake(
    settings: Settings,
    delivery: JournalAppender,
    blobs: BlobStore,
    clock: Clock,
    cluster: OwnCluster | None = None,
) -> RequestIntake:
    """Return the component that publishes requests; nothing connects before it is started."""
    parts = _IntakeParts(settings, delivery, blobs, clock, cluster)
    return RequestIntake(parts.publishing(), clock, early=parts.early(), of_producers=parts.early())


@dataclass(frozen=True)
class _IntakeParts:
    """What the threads of one intake are made of; each has its own."""

    settings: Settings
    delivery: JournalAppender
    blobs: BlobStore
    clock: Clock
    cluster: OwnCluster | None

    def publishing(self) -> Publishing:
        return Publishing(
            AppendLock(self._lock_connection),
            self._packer(),
            self.delivery,
            clock=self.clock,
            patience=patience_of(self.settings),
        )

    def early(self) -> EarlyPublishing:
        url, agent = self.settings.database_url.get_secret_value(), self.settings.agent
        return EarlyPublishing(
            self.publishing(),
            DraftExporter(self._packer(), group_bytes=_EARLY_BYTES),
            partial(early_connection, url, f"publisher-early-{agent}"),
            agent=agent,
        )

    def _packer(self) -> Packer:
        settings = self.settings
        return Packer(
            self.blobs,
            settings.agent,
            settings.instance,
            self.clock,
            limits_of(settings),
        )

    def _lock_connection(self) -> Connection:
        """Connect for the append lock, which ends when this run of the program is declared dead."""
        url = self.settings.database_url.get_secret_value()
        connection = lock_connection(url, f"publisher-append-lock-{self.settings.agent}")
        if self.cluster is not None:
            self.cluster.tie_session(connection)
        return connection
