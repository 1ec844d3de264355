"""Puts a publisher together from its settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock
from packhorse.db.connect import async_pool
from packhorse.db.pool import SharedPool, ask
from packhorse.jobs.host import JobsHost
from packhorse.messaging.api import Journal, Record
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.metrics import report
from packhorse.runtime.periodic import Periodic
from packhorse.topology.own_cluster import OwnCluster
from packhorse_services.publisher.assembly.housekeeping import Housekeeping
from packhorse_services.publisher.assembly.intake_parts import (
    limits_of,
    patience_of,
    request_intake,
)
from packhorse_services.publisher.assembly.maintenance import (
    MaintenanceTask,
    host_of,
)
from packhorse_services.publisher.assembly.outcome_parts import OutcomeParts, outcome_parts
from packhorse_services.publisher.commands.command_sender import CommandSender
from packhorse_services.publisher.commands.issuing import CommandIssuer
from packhorse_services.publisher.distributions.delivery_status import DeliveryStatusQuery
from packhorse_services.publisher.distributions.distribution_list import DistributionList
from packhorse_services.publisher.distributions.distribution_query import DistributionQuery
from packhorse_services.publisher.http.collaborators import Collaborators
from packhorse_services.publisher.live.agent_log import event_logs
from packhorse_services.publisher.live.event_hub import EventHub
from packhorse_services.publisher.outbox.journal_appender import JournalAppender
from packhorse_services.publisher.outbox.producer_registry import ProducerRegistry
from packhorse_services.publisher.outcomes.error_queue import ErrorQueues
from packhorse_services.publisher.publish.admission import LOOKS, Admission, QueueLimits
from packhorse_services.publisher.publish.dry_run import AT_ONCE, DryRuns
from packhorse_services.publisher.publish.publishing import check_room
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed
from packhorse_services.publisher.queues.error_counts import ErrorCounts
from packhorse_services.publisher.queues.history.answering import QueueHistories
from packhorse_services.publisher.queues.history.sampler import QueueSampler
from packhorse_services.publisher.queues.known_subscribers import KnownSubscribers
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.subscribers import Subscribers
from packhorse_services.publisher.queues.topic_follower import TopicFollower
from packhorse_services.publisher.releases.planning import Releases, topic_of
from packhorse_services.publisher.releases.sending import ReleaseSender
from packhorse_services.publisher.settings import Settings

_UPKEEP_S = 15.0
_TIDY_EVERY = timedelta(minutes=5)


@dataclass(frozen=True)
class Backends:
    """What a publisher stands on."""

    journal: Journal
    blobs: BlobStore
    authenticator: Authenticator
    clock: Clock
    cluster: OwnCluster | None = None
    """Where it takes part; not started."""


class PublisherParts:
    """The parts of a publisher: what its routes work with, and what is started and stopped."""

    def __init__(self, settings: Settings, backends: Backends) -> None:
        """Put them together; nothing connects before it is started."""
        report("packhorse_publisher_")
        self.settings, self.backends = settings, backends
        self.journal, self.clock = backends.journal, backends.clock
        self.topics = settings.topics
        self.url = settings.database_url.get_secret_value()
        self.pool = SharedPool(self.url, "publisher")
        self.tasks, self.commands_share = self.pool.share(2), self.pool.share(4)
        self.command_sender = CommandSender(
            self.commands_share, self.journal, self.topics.command, settings.agent, self.clock
        )
        self.routes_pool = async_pool(self.url, "publisher-routes")
        subscribers = Subscribers(self.clock, settings.agent)
        self.queues = Queues(self._feed(), subscribers, ErrorCounts(), self.clock)
        self.sampler = QueueSampler(self.tasks, self.queues)
        self.outcomes = self._outcomes()
        self.announcements = TopicFollower(
            self.journal, self.topics.discovery, self._hear, self.clock
        )
        self.hub = self._hub()
        self.delivery = self._appender()
        self.intake = request_intake(
            settings, self.delivery, backends.blobs, self.clock, backends.cluster
        )
        self.admission = self._admission()
        self.releases = Releases(self.pool.share(2), settings.agent, self.admission.check_targets)
        self.collaborators, self.components = self._collaborators(), self._components()
        self.readiness, self.warnings = self._readiness(), self._warnings()

    def _collaborators(self) -> Collaborators:
        deliveries = DeliveryStatusQuery(self.routes_pool, self.queues, self.outcomes.watermark)
        return Collaborators(
            intake=self.intake,
            admission=self.admission,
            queues=self.queues,
            distributions=DistributionQuery(self.routes_pool, self.queues, deliveries),
            distribution_list=DistributionList(self.routes_pool, deliveries, self.settings.agent),
            commands=CommandIssuer(
                self.commands_share,
                self.journal,
                self.topics.package,
                self.queues,
                self.command_sender,
            ),
            errors=ErrorQueues(self.routes_pool, self.settings.agent, self.queues.errors),
            hub=self.hub,
            producers=ProducerRegistry(
                self.routes_pool, self.settings.agent, self.settings.producers
            ),
            dry_runs=DryRuns(self.pool.share(AT_ONCE), limits_of(self.settings)),
            releases=self.releases,
            known_subscribers=KnownSubscribers(self.routes_pool, self.queues),
            histories=QueueHistories(self.routes_pool, self.settings.agent),
            blobs=self.backends.blobs,
            orphan_grace=timedelta(hours=self.settings.orphan_grace_hours),
        )

    def _components(self) -> Sequence[Component]:
        cluster = self.backends.cluster
        return (
            self.pool,
            *(() if cluster is None else (cluster,)),
            self.command_sender,
            self.announcements,
            self.queues.feed,
            *self.outcomes.components,
            self.hub,
            self.intake,
            Periodic("queue-upkeep", _UPKEEP_S, self._keep_up, clock=self.clock),
            # The last: its jobs use the intake, so they end before that refuses them.
            *(() if cluster is None else (self._maintenance_tasks(cluster),)),
        )

    def _keep_up(self) -> None:
        self.queues.keep_up()
        self.sampler.sample()

    def _maintenance_tasks(self, cluster: OwnCluster) -> JobsHost:
        """Without a cluster nobody does them: a publisher of a test is not there for long."""
        housekeeping = Housekeeping(self.tasks, self.journal, self.settings)
        about = "Forgets requests, outcomes and subscribers that nobody will ask for again"
        agent = self.settings.agent
        tidy = MaintenanceTask("tidy", _TIDY_EVERY, about, housekeeping.tidy, agent)
        tasks = (tidy, self.outcomes.snapshot_task)
        sender = ReleaseSender(
            self.releases, self.intake.submit, self.admission.check, self.announcements.check
        )
        sending = {topic_of(agent): sender}
        return host_of(self.url, cluster, tasks, sending, self.pool)

    def _readiness(self) -> Mapping[str, Callable[[], None]]:
        share = self.pool.share(1)
        return {
            "database": partial(ask, share),
            "outbox": partial(check_room, share, patience_of(self.settings), self.delivery),
            "exports": self.intake.check,
            "subscribers": self.announcements.check,
            "statuses": self.outcomes.watermark.check,
        }

    def _warnings(self) -> Mapping[str, Callable[[], None]]:
        """Return what is no reason to send no requests: the outbox takes them meanwhile."""
        return {
            "journal": partial(_ask_journal, self.journal, self.topics.package),
            "package-topic": self.delivery.check,
            "event-topic": self.outcomes.check_events,
        }

    def _hear(self, record: Record, fresh: bool) -> None:
        self.queues.subscribers.note(record, fresh)
        self.outcomes.watermark.notify()

    def _outcomes(self) -> OutcomeParts:
        return outcome_parts(
            self.settings,
            self.queues,
            self.journal,
            self.topics,
            self.tasks,
            self.backends.cluster,
        )

    def _hub(self) -> EventHub:
        logs = event_logs(self.journal, self.topics, self.settings.agent)
        hub = EventHub(logs, self.queues, self.clock, max_streams=self.settings.event_streams)
        hub.on_statuses = self.outcomes.hint
        self.queues.feed.tap = hub.take_packages
        return hub

    def _feed(self) -> QueueFeed:
        return QueueFeed(
            self.journal,
            self.topics.package,
            QueueCache(self.settings.agent, max_bytes=self.settings.cache_bytes),
            clock=self.clock,
        )

    def _appender(self) -> JournalAppender:
        return JournalAppender(
            self.journal,
            self.topics.package,
            most_producers=self.settings.producers,
            on_other_log=self.queues.feed.distrust,
        )

    def _admission(self) -> Admission:
        limits = QueueLimits(self.settings.queue_packages, self.settings.queue_bytes)
        return Admission(self.queues, limits, self.pool.share(LOOKS))


def _ask_journal(journal: Journal, topic: str) -> None:
    journal.bounds(topic)
