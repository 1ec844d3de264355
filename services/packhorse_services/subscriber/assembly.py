"""Puts a subscriber together from its settings: a lease, a lane for each agent, what they tell."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock, SystemClock
from packhorse.messaging.api import Journal
from packhorse.runtime.lifecycle import Component
from packhorse.wire.topics import Topics
from packhorse_services.subscriber.announcer import Announcer, Identity
from packhorse_services.subscriber.attempts import Attempts, RetryPolicy
from packhorse_services.subscriber.clearances import Clearances
from packhorse_services.subscriber.commands.control import LaneControl
from packhorse_services.subscriber.commands.follower import CommandFollower
from packhorse_services.subscriber.commands.orders import Orders
from packhorse_services.subscriber.connections import Connections
from packhorse_services.subscriber.desk import Desk, GroupLimits
from packhorse_services.subscriber.importer import Importer
from packhorse_services.subscriber.lane import Lane, LaneSettings
from packhorse_services.subscriber.lane_report import LaneReport, Settled
from packhorse_services.subscriber.lease import Lease, LeaseSettings
from packhorse_services.subscriber.prefetch import PrefetchLimits
from packhorse_services.subscriber.remembered import Forgetting, PackageMemory
from packhorse_services.subscriber.settings import Settings
from packhorse_services.subscriber.snapshots.joining import Joining
from packhorse_services.subscriber.staging import OpenGate, Staging
from packhorse_services.subscriber.staging_follower import StagingFollower
from packhorse_services.subscriber.statuses import StatusSender


@dataclass(frozen=True, slots=True)
class Subscriber:
    """The parts of a running subscriber that others look at, and all of them to start and stop."""

    identity: Identity
    topics: Topics
    journal: Journal
    lease: Lease
    reports: list[LaneReport]
    components: list[Component]
    clock: Clock


def assemble(
    settings: Settings, journal: Journal, blobs: BlobStore, clock: Clock | None = None
) -> Subscriber:
    """Return a subscriber whose components are ready to be started in their order."""
    return _Assembly(settings, journal, blobs, clock or SystemClock()).subscriber()


class _Assembly:
    """What several parts share while they are being made."""

    def __init__(
        self, settings: Settings, journal: Journal, blobs: BlobStore, clock: Clock
    ) -> None:
        self.settings, self.journal, self.blobs, self.clock = settings, journal, blobs, clock
        self.topics = Topics.prefixed(settings.topic_prefix)
        self.identity = Identity(
            settings.subscriber,
            secrets.token_hex(8),
            settings.editable,
            settings.max_retries,
            settings.endpoint
            or (f"http://{settings.host}:{settings.port}" if settings.port else ""),
        )
        self.connections = Connections(
            settings.database_url.get_secret_value(),
            self.identity.instance,
            idle_in_transaction_ms=int(settings.idle_in_transaction_s * 1000),
        )
        self.lease = Lease(
            self.connections.lease,
            self.identity.instance,
            LeaseSettings(settings.lease_s),
            clock,
        )
        self.clearances, self.control = Clearances(), LaneControl()
        self.staging = Staging(settings.wait_for, clock) if settings.wait_for else None
        self.memory = PackageMemory(settings.remember_packages_h)

    def subscriber(self) -> Subscriber:
        reports = [LaneReport(agent) for agent in self.settings.publisher_agents]
        announcer = self._announcer(reports)

        def on_settled(settled: Mapping[str, Settled]) -> None:
            for report in reports:
                report.settle(settled.get(report.state.publisher_agent))
            announcer.kick()

        # Progress is announced after its statuses are sent, so that one announcement says both.
        statuses = self._statuses(on_settled)
        commands = self._commands(statuses.kick)
        joining = self._joining(reports, announcer.kick)
        lanes = [self._lane(report, commands, joining, statuses.kick) for report in reports]
        followers: list[Component] = [commands]
        if self.staging is not None:
            followers.append(StagingFollower(self.journal, self.topics, self.staging, self.clock))
        if self.memory.hours:
            followers.append(self._forgetting())
        return Subscriber(
            self.identity,
            self.topics,
            self.journal,
            self.lease,
            reports,
            [self.lease, announcer, statuses, *followers, *lanes],
            self.clock,
        )

    def _forgetting(self) -> Forgetting:
        return Forgetting(
            self.memory,
            self.connections.bookkeeper,
            may_forget=lambda: self.lease.epoch() is not None,
        )

    def _announcer(self, reports: list[LaneReport]) -> Announcer:
        return Announcer(
            self.journal,
            self.topics,
            self.identity,
            reports,
            lease=self.lease,
            interval_s=self.settings.announce_s,
            clock=self.clock,
        )

    def _statuses(self, on_settled: Callable[[Mapping[str, Settled]], None]) -> StatusSender:
        return StatusSender(
            self.connections.bookkeeper,
            self.journal,
            self.topics.status,
            subscriber=self.identity.subscriber,
            instance=self.identity.instance,
            may_send=lambda: self.lease.epoch() is not None,
            on_settled=on_settled,
        )

    def _commands(self, on_decision: Callable[[], None]) -> CommandFollower:
        orders = Orders(
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
            orders,
            self.lease,
            clearances=self.clearances,
            lane_control=self.control,
            on_decision=on_decision,
            clock=self.clock,
        )

    def _joining(self, reports: list[LaneReport], on_progress: Callable[[], None]) -> Joining:
        return Joining(
            self.identity.subscriber,
            reports,
            self.journal,
            self.topics.package,
            self.blobs,
            self.lease,
            self.control,
            self.settings.import_roots,
            self.settings.remember_packages_h > 0,
            self.staging,
            on_progress,
        )

    def _lane(
        self,
        report: LaneReport,
        commands: CommandFollower,
        joining: Joining,
        on_progress: Callable[[], None],
    ) -> Lane:
        settings, agent = self.settings, report.state.publisher_agent
        policy = RetryPolicy(
            settings.max_retries, settings.backoff_first_s, settings.backoff_longest_s
        )
        desk = Desk(
            Importer(
                self.identity.subscriber, self.blobs, settings.import_roots, memory=self.memory
            ),
            Attempts(agent, policy, self.clock),
            self.clearances,
            report,
            self.clock,
            settings.editable,
            GroupLimits(settings.group_packages, settings.group_bytes),
            on_progress,
            self.staging or OpenGate(),
            self.control,
        )
        lane = LaneSettings(
            agent,
            self.topics.package,
            settings.start,
            PrefetchLimits(settings.prefetch_packages, settings.prefetch_bytes),
        )
        return Lane(
            *(lane, self.connections.lane, self.journal, self.lease, desk),
            commands=commands,
            joining=joining,
        )
