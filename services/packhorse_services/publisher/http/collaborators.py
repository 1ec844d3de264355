"""What the routes of a publisher work with."""

from dataclasses import dataclass, field
from datetime import timedelta

from starlette.requests import Request

from packhorse.blobs.api import BlobStore
from packhorse.runtime.threads import LoopWakeups
from packhorse_services.publisher.commands.issuing import CommandIssuer
from packhorse_services.publisher.distributions.distribution_list import DistributionList
from packhorse_services.publisher.distributions.distribution_query import DistributionQuery
from packhorse_services.publisher.live.event_hub import EventHub
from packhorse_services.publisher.outbox.producer_registry import ProducerRegistry
from packhorse_services.publisher.outcomes.error_queue import ErrorQueues
from packhorse_services.publisher.publish.admission import Admission
from packhorse_services.publisher.publish.dry_run import DryRuns
from packhorse_services.publisher.publish.request_intake import RequestIntake
from packhorse_services.publisher.queues.history.answering import QueueHistories
from packhorse_services.publisher.queues.known_subscribers import KnownSubscribers
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.releases.planning import Releases


@dataclass(frozen=True)
class Collaborators:
    """One publisher agent's, in this process."""

    intake: RequestIntake
    admission: Admission
    queues: Queues
    distributions: DistributionQuery
    distribution_list: DistributionList
    errors: ErrorQueues
    hub: EventHub
    commands: CommandIssuer
    producers: ProducerRegistry
    known_subscribers: KnownSubscribers
    histories: QueueHistories
    dry_runs: DryRuns
    releases: Releases
    blobs: BlobStore
    orphan_grace: timedelta
    """How long the cleanup leaves a blob alone that belongs to no package."""
    wakeups: LoopWakeups = field(default_factory=LoopWakeups)
    """Through which requests hear of their packages."""

    @property
    def agent(self) -> str:
        """The publisher agent."""
        return self.queues.agent


def of(request: Request) -> Collaborators:
    """Return those of the app that serves `request`."""
    collaborators: Collaborators = request.app.state.publisher
    return collaborators
