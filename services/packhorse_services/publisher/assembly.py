"""Puts a publisher together from its settings: what exports and appends, and what reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock
from packhorse.db.connect import ask, async_pool, open_pool
from packhorse.jobs.host import JobsHost
from packhorse.messaging.api import Journal, Record
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.periodic import Periodic
from packhorse.topology.own_cluster import OwnCluster
from packhorse.wire.topics import Topics
from packhorse_services.publisher.admission import Admission, QueueLimits
from packhorse_services.publisher.chores import Chore, host_of
from packhorse_services.publisher.collaborators import Collaborators
from packhorse_services.publisher.commands.issuing import Commands
from packhorse_services.publisher.commands.sender import CommandSender
from packhorse_services.publisher.commands.store import note_status
from packhorse_services.publisher.deliveries import Deliveries, Pool
from packhorse_services.publisher.delivery import Delivery
from packhorse_services.publisher.distribute import Packer
from packhorse_services.publisher.distribution_list import DistributionList
from packhorse_services.publisher.distributions import Distributions
from packhorse_services.publisher.drafting import Drafter
from packhorse_services.publisher.dry_run import AT_ONCE, DryRuns
from packhorse_services.publisher.early import EarlyPublishing, early_connection
from packhorse_services.publisher.exporter import Exporter
from packhorse_services.publisher.housekeeping import Housekeeping
from packhorse_services.publisher.live.hub import Hub
from packhorse_services.publisher.live.logs import event_logs
from packhorse_services.publisher.outcomes.error_queue import ErrorQueues
from packhorse_services.publisher.outcomes.parts import OutcomeParts, outcome_parts
from packhorse_services.publisher.producer_registry import ProducerRegistry
from packhorse_services.publisher.publishing import Patience, Publishing
from packhorse_services.publisher.queues.cache import QueueCache
from packhorse_services.publisher.queues.errors import ErrorCounts
from packhorse_services.publisher.queues.feed import QueueFeed
from packhorse_services.publisher.queues.follower import TopicFollower
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.subscribers import Subscribers
from packhorse_services.publisher.settings import Settings
from packhorse_services.publisher.slot import Slot, slot_connection
from packhorse_services.publisher.subscriber_names import SubscriberNames

_UPKEEP_S = 15.0
_TIDY_EVERY = timedelta(minutes=5)
_EARLY_BYTES = 2 * 1024 * 1024
"""A group that was exported early is written under the slot, so it is kept small."""


@dataclass(frozen=True)
class Backends:
    """What a publisher stands on."""

    journal: Journal
    blobs: BlobStore
    authenticator: Authenticator
    clock: Clock
    cluster: OwnCluster | None = None
    """Where it takes part; not started."""


@dataclass(frozen=True)
class Assembled:
    """The parts of a publisher: what its routes work with, and what is started and stopped."""

    collaborators: Collaborators
    routes_pool: Pool
    readiness: Mapping[str, Callable[[], None]]
    components: Sequence[Component]


def assemble(settings: Settings, backends: Backends) -> Assembled:
    """Return the parts; nothing connects before it is started."""
    return _Assembly(settings, backends).assembled()


@dataclass(frozen=True)
class _Closed:
    """Closes a pool when all that use it have stopped."""

    pool: ConnectionPool[Connection]

    def start(self) -> None:
        """Do nothing: the pool connects when it is first used."""

    def stop(self, timeout: float) -> None:
        """Close it."""
        self.pool.close(timeout)


class _Assembly:
    """What several parts share while they are being made."""

    def __init__(self, settings: Settings, backends: Backends) -> None:
        self.settings, self.backends = settings, backends
        self.journal, self.clock = backends.journal, backends.clock
        self.topics = Topics.prefixed(settings.topic_prefix)
        self.url = settings.database_url.get_secret_value()
        self.tasks = open_pool(self.url, "publisher-tasks", size=2)
        self.dry_runs_pool = open_pool(self.url, "publisher-dry-runs", size=AT_ONCE)
        self.readiness_pool = open_pool(self.url, "publisher-readiness", size=1)
        self.commands_pool = open_pool(self.url, "publisher-commands", size=4)
        self.command_sender = CommandSender(
            self.commands_pool, self.journal, self.topics.command, settings.agent, self.clock
        )
        self.routes_pool = async_pool(self.url, "publisher-routes")
        subscribers = Subscribers(self.clock, settings.agent)
        self.queues = Queues(self._feed(), subscribers, ErrorCounts(), self.clock)
        self.outcomes = self._outcomes()
        self.announcements = TopicFollower(
            self.journal, self.topics.discovery, self._hear, self.clock
        )
        self.hub = self._hub()
        self.delivery = Delivery(
            self.journal, self.topics.package, most_producers=settings.producers
        )
        self.exporter = Exporter(
            self._publishing(), self.clock, early=self._early(), of_producers=self._early()
        )

    def assembled(self) -> Assembled:
        return Assembled(
            self._collaborators(), self.routes_pool, self._readiness(), self._components()
        )

    def _collaborators(self) -> Collaborators:
        distributions = Distributions(self.routes_pool, self.queues, self._deliveries())
        return Collaborators(
            exporter=self.exporter,
            admission=self._admission(),
            queues=self.queues,
            distributions=distributions,
            distribution_list=DistributionList(
                self.routes_pool, distributions, self.settings.agent
            ),
            commands=Commands(
                self.commands_pool,
                self.journal,
                self.topics.package,
                self.queues,
                self.command_sender,
            ),
            errors=ErrorQueues(self.routes_pool, self.settings.agent),
            hub=self.hub,
            producers=ProducerRegistry(
                self.routes_pool, self.settings.agent, self.settings.producers
            ),
            dry_runs=DryRuns(self.dry_runs_pool),
            subscriber_names=SubscriberNames(self.routes_pool, self.queues),
            blobs=self.backends.blobs,
            orphan_grace=timedelta(hours=self.settings.orphan_grace_hours),
        )

    def _pools(self) -> Sequence[ConnectionPool[Connection]]:
        return self.tasks, self.commands_pool, self.dry_runs_pool, self.readiness_pool

    def _components(self) -> Sequence[Component]:
        cluster = self.backends.cluster
        return (
            *map(_Closed, self._pools()),
            *(() if cluster is None else (cluster, self._chores(cluster))),
            self.command_sender,
            self.announcements,
            self.queues.feed,
            *self.outcomes.components,
            self.hub,
            self.exporter,
            Periodic("queue-upkeep", _UPKEEP_S, self.queues.keep_up, clock=self.clock),
        )

    def _chores(self, cluster: OwnCluster) -> JobsHost:
        """Without a cluster nobody does them: a publisher of a test is not there for long."""
        housekeeping = Housekeeping(
            self.tasks,
            self.journal,
            self.topics.package,
            keep_keys_s=self.settings.idempotency_hours * 3600,
            keep_producers_s=self.settings.producer_days * 86_400,
        )
        about = "Forgets idempotency keys, producers, commands and distributions of long ago"
        tidy = Chore("tidy", _TIDY_EVERY, about, housekeeping.tidy)
        return host_of(self.url, cluster, (tidy, *self.outcomes.chores))

    def _readiness(self) -> Mapping[str, Callable[[], None]]:
        return {
            "database": partial(ask, self.readiness_pool),
            "journal": partial(_ask_journal, self.journal, self.topics.package),
            "outbox": self.delivery.check,
            "subscribers": self.announcements.check,
            "statuses": self.outcomes.settlement.check,
        }

    def _hear(self, record: Record, fresh: bool) -> None:
        self.queues.subscribers.note(record, fresh)
        self.outcomes.settlement.heard()

    def _outcomes(self) -> OutcomeParts:
        return outcome_parts(
            *(self.queues, self.journal, self.topics),
            database_url=self.url,
            pool=self.tasks,
            note_command=note_status,
            keep_failed_s=self.settings.keep_failed_days * 86_400,
            clock=self.clock,
            cluster=self.backends.cluster,
        )

    def _deliveries(self) -> Deliveries:
        return Deliveries(self.routes_pool, self.queues, self.outcomes.settlement)

    def _hub(self) -> Hub:
        logs = event_logs(self.journal, self.topics, self.settings.agent)
        hub = Hub(logs, self.queues, self.clock, max_streams=self.settings.event_streams)
        self.queues.feed.tap = hub.take_packages
        return hub

    def _feed(self) -> QueueFeed:
        return QueueFeed(
            self.journal,
            self.topics.package,
            QueueCache(self.settings.agent, max_bytes=self.settings.cache_bytes),
            clock=self.clock,
        )

    def _admission(self) -> Admission:
        limits = QueueLimits(self.settings.queue_packages, self.settings.queue_bytes)
        agent = self.settings.agent
        return Admission(self.queues.backlog, limits, self.tasks, agent=agent)

    def _early(self) -> EarlyPublishing:
        return EarlyPublishing(
            self._publishing(),
            Drafter(self._packer(), group_bytes=_EARLY_BYTES),
            partial(early_connection, self.url, f"publisher-early-{self.settings.agent}"),
            agent=self.settings.agent,
        )

    def _packer(self) -> Packer:
        settings = self.settings
        return Packer(self.backends.blobs, settings.agent, settings.instance, self.clock)

    def _publishing(self) -> Publishing:
        settings = self.settings
        return Publishing(
            Slot(partial(slot_connection, self.url, f"publisher-slot-{settings.agent}")),
            self._packer(),
            self.delivery,
            clock=self.clock,
            patience=Patience(
                outbox_packages=settings.outbox_packages, outbox_age_s=settings.outbox_age_s
            ),
        )


def _ask_journal(journal: Journal, topic: str) -> None:
    journal.bounds(topic)
