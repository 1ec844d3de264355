"""What the routes of a publisher work with."""

from dataclasses import dataclass
from datetime import timedelta

from starlette.requests import Request

from packhorse.blobs.api import BlobStore
from packhorse_services.publisher.admission import Admission
from packhorse_services.publisher.commands.issuing import Commands
from packhorse_services.publisher.distribution_list import DistributionList
from packhorse_services.publisher.distributions import Distributions
from packhorse_services.publisher.dry_run import DryRuns
from packhorse_services.publisher.exporter import Exporter
from packhorse_services.publisher.live.hub import Hub
from packhorse_services.publisher.outcomes.error_queue import ErrorQueues
from packhorse_services.publisher.producer_registry import ProducerRegistry
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.subscriber_names import SubscriberNames


@dataclass(frozen=True)
class Collaborators:
    """One publisher agent's, in this process."""

    exporter: Exporter
    admission: Admission
    queues: Queues
    distributions: Distributions
    distribution_list: DistributionList
    errors: ErrorQueues
    hub: Hub
    commands: Commands
    producers: ProducerRegistry
    subscriber_names: SubscriberNames
    dry_runs: DryRuns
    blobs: BlobStore
    orphan_grace: timedelta
    """How long the cleanup leaves a blob alone that belongs to no package."""

    @property
    def agent(self) -> str:
        """The publisher agent."""
        return self.queues.agent


def of(request: Request) -> Collaborators:
    """Return those of the app that serves `request`."""
    collaborators: Collaborators = request.app.state.publisher
    return collaborators
