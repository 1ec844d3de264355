"""Puts a subscriber together from its settings.

A lease, a subscription for each agent, what they report.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock, SystemClock
from packhorse.messaging.api import Journal
from packhorse.packages.limits import LIMITS
from packhorse.runtime import metrics
from packhorse.runtime.lifecycle import Component
from packhorse.wire.topics import Topics
from packhorse_services.subscriber.announce.announcer import Announcer, Identity
from packhorse_services.subscriber.announce.catching_up import CatchingUp
from packhorse_services.subscriber.announce.statuses import StatusSender
from packhorse_services.subscriber.announce.subscription_report import Settled, SubscriptionReport
from packhorse_services.subscriber.commands.clear_commands import ClearCommands
from packhorse_services.subscriber.commands.control import SubscriptionControl
from packhorse_services.subscriber.commands.follower import CommandFollower, CommandListeners
from packhorse_services.subscriber.commands.handler import CommandHandler
from packhorse_services.subscriber.importing.attempts import Attempts, RetryPolicy
from packhorse_services.subscriber.importing.context import (
    GroupLimits,
    ProgressListener,
    SessionContext,
)
from packhorse_services.subscriber.importing.imported_ids import ImportedIds, earlier_in
from packhorse_services.subscriber.importing.importer import Importer
from packhorse_services.subscriber.importing.remembered import PackageMemory, SubscriberHousekeeping
from packhorse_services.subscriber.importing.subscription import (
    Subscription,
    SubscriptionSettings,
)
from packhorse_services.subscriber.journal.journal_check import package_at
from packhorse_services.subscriber.journal.prefetch import PrefetchLimits
from packhorse_services.subscriber.lease import Connections, Lease
from packhorse_services.subscriber.settings import Settings
from packhorse_services.subscriber.snapshots.joining import SnapshotLoading
from packhorse_services.subscriber.staging.follower import StagingFollower
from packhorse_services.subscriber.staging.staging import OpenGate, Staging


@dataclass(frozen=True, slots=True)
class SubscriberProgram:
    """The parts of a running subscriber that others look at, and all of them to start and stop."""

    identity: Identity
    topics: Topics
    journal: Journal
    lease: Lease
    reports: list[SubscriptionReport]
    components: list[Component]
    clock: Clock
    catching_up: CatchingUp


def assemble(settings: Settings, journal: Journal, blobs: BlobStore) -> SubscriberProgram:
    """Return a subscriber whose components are ready to be started in their order."""
    metrics.report("packhorse_subscriber_")
    return _Assembly(settings, journal, blobs).subscriber()


class _Assembly:
    """What several parts share while they are being made."""

    def __init__(self, settings: Settings, journal: Journal, blobs: BlobStore) -> None:
        self.settings, self.journal, self.blobs = settings, journal, blobs
        self.clock = SystemClock()
        self.topics = settings.topics
        self.identity = Identity(
            settings.subscriber,
            secrets.token_hex(8),
            settings.editable,
            settings.max_retries,
            settings.endpoint
            or (f"http://{settings.host}:{settings.port}" if settings.port else ""),
            settings.announce_s,
            settings.path_filter,
        )
        self.connections = Connections(
            settings.database_url.get_secret_value(),
            self.identity.instance,
            idle_in_transaction_ms=int(settings.idle_in_transaction_s * 1000),
        )
        self.lease = Lease(
            self.connections.lease,
            self.identity.instance,
            settings.lease_s,
            self.clock,
        )
        self.clears, self.control = ClearCommands(), SubscriptionControl()
        in_log = partial(package_at, journal, self.topics.package)
        self.staging = Staging(settings.wait_for, self.clock, in_log) if settings.wait_for else None
        self.memory = PackageMemory(settings.remember_packages_h)

    def subscriber(self) -> SubscriberProgram:
        reports = [SubscriptionReport(agent) for agent in self.settings.publisher_agents]
        announcer = self._announcer(reports)

        def on_settled(settled: Mapping[str, Settled], awaited: bool) -> None:
            for report in reports:
                report.set_settled(settled.get(report.state.publisher_agent))
            announcer.kick(awaited=awaited)

        # Progress is announced after its statuses are sent, so that one announcement says both.
        statuses = self._statuses(on_settled)
        # What was asked for while the lease had lapsed was not sent.
        self.lease.when_held(statuses.kick)
        commands = self._commands(statuses.kick)
        joining = self._joining(reports, announcer.kick)
        subscriptions = [
            self._subscription(report, commands, joining, statuses.kick) for report in reports
        ]
        catching_up = CatchingUp(reports, self.settings.ready, self.clock)
        first = (self.lease, announcer, statuses, commands)
        return SubscriberProgram(
            self.identity,
            self.topics,
            self.journal,
            self.lease,
            reports,
            [*first, *self._followers(), *subscriptions, catching_up],
            self.clock,
            catching_up,
        )

    def _followers(self) -> Iterator[Component]:
        if self.staging is not None:
            yield StagingFollower(self.journal, self.topics, self.staging, self.clock)
        yield self._housekeeping()

    def _housekeeping(self) -> SubscriberHousekeeping:
        return SubscriberHousekeeping(
            self.memory,
            self.connections.bookkeeper,
            may_remove=lambda: self.lease.epoch() is not None,
        )

    def _announcer(self, reports: list[SubscriptionReport]) -> Announcer:
        return Announcer(
            self.journal,
            self.topics,
            self.identity,
            reports,
            self.lease,
            self.clock,
        )

    def _statuses(self, on_settled: Callable[[Mapping[str, Settled], bool], None]) -> StatusSender:
        return StatusSender(
            self.connections.bookkeeper,
            self.journal,
            self.topics.status,
            self.identity,
            may_send=lambda: self.lease.epoch() is not None,
            on_settled=on_settled,
        )

    def _commands(self, on_decision: Callable[[], None]) -> CommandFollower:
        handler = CommandHandler(
            self.identity.subscriber,
            self.settings.publisher_agents,
            self.settings.editable,
            self.journal,
            self.topics.package,
            remembers=self.settings.remember_packages_h > 0,
        )
        return CommandFollower(
            self.connections.bookkeeper,
            self.topics.command,
            handler,
            self.lease,
            CommandListeners(self.clears, self.control, on_decision),
            self.clock,
        )

    def _joining(
        self, reports: list[SubscriptionReport], on_progress: Callable[[], None]
    ) -> SnapshotLoading:
        return SnapshotLoading(
            identity=self.identity,
            reports=reports,
            journal=self.journal,
            topic=self.topics.package,
            blobs=self.blobs,
            lease=self.lease,
            control=self.control,
            roots=self.settings.import_roots,
            remembers=self.settings.remember_packages_h > 0,
            staging=self.staging,
            on_progress=on_progress,
        )

    def _subscription(
        self,
        report: SubscriptionReport,
        commands: CommandFollower,
        joining: SnapshotLoading,
        on_progress: ProgressListener,
    ) -> Subscription:
        settings, context = self.settings, self._context(report, on_progress)
        subscription = SubscriptionSettings(
            report.state.publisher_agent,
            settings.start,
            PrefetchLimits(settings.prefetch_packages, settings.prefetch_bytes),
        )
        connect = self.connections.subscription
        return Subscription(subscription, connect, commands, joining, self.lease, context)

    def _context(self, report: SubscriptionReport, on_progress: ProgressListener) -> SessionContext:
        settings, agent = self.settings, report.state.publisher_agent
        policy = RetryPolicy(
            settings.max_retries, settings.backoff_first_s, settings.backoff_longest_s
        )
        return SessionContext(
            importer=self._importer(),
            attempts=Attempts(agent, policy, self.clock),
            clears=self.clears,
            report=report,
            clock=self.clock,
            editable=settings.editable,
            limits=GroupLimits(settings.group_packages, settings.group_bytes),
            on_progress=on_progress,
            gate=self.staging or OpenGate(),
            control=self.control,
            imported=ImportedIds(earlier_in(self.journal, self.topics.package)),
        )

    def _importer(self) -> Importer:
        settings = self.settings
        return Importer(
            self.identity.subscriber,
            self.blobs,
            settings.import_roots,
            replace(LIMITS, content_bytes=settings.max_package_bytes),
            self.memory,
            settings.path_filter,
        )
