"""`packhorse-publisher`, and `python -m packhorse_services.publisher`."""

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.db.prepare import prepare_database
from packhorse.jobs.host import LEADER_TASKS
from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.runtime.serve import configured, run_program, run_service
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from packhorse_services.publisher.app import Backends, publisher
from packhorse_services.publisher.assembly.outcome_parts import leader_task_of
from packhorse_services.publisher.settings import Settings


def serve() -> None:
    """Publish and serve until it is stopped."""
    settings = configured(Settings)
    authenticator = authenticator_for(settings)
    prepare_database(settings.database_url.get_secret_value(), "packhorse-publisher")
    blobs = open_blobs(settings.blobs_url)
    journal = open_journal(
        settings.journal_url, client_name=f"packhorse-publisher {settings.agent}"
    )
    try:
        _prepare_topics(journal, settings)
        cluster = _own_cluster(settings)
        parts = publisher(settings, Backends(journal, blobs, authenticator, SystemClock(), cluster))
        run_service(parts.app, settings, parts.components)
    finally:
        journal.close()
        blobs.close()


def _own_cluster(settings: Settings) -> OwnCluster:
    agent = settings.agent
    announced = InstanceProperties(
        "publisher",
        agent,
        endpoint=settings.endpoint,
        leader_tasks=(leader_task_of(agent), *LEADER_TASKS),
    )
    return join(settings.database_url.get_secret_value(), settings, announced)


def _prepare_topics(journal: Journal, settings: Settings) -> None:
    """Create the topics that are missing. Raises `InvalidConfiguration` for wrong ones."""
    wanted = standard_topics(settings.topics, kept_hours=settings.keep_packages_hours)
    journal.create_topics(wanted)
    faults = journal.check_topics(wanted)
    if faults:
        raise InvalidConfiguration("; ".join(faults))


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    run_program(serve)


if __name__ == "__main__":
    main()
