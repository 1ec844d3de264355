"""`packhorse-subscriber`, and `python -m packhorse_services.subscriber`."""

from packhorse.blobs.open import open_blobs
from packhorse.db.prepare import prepare_database
from packhorse.messaging.open import open_journal
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.serve import configured, run_program, run_service
from packhorse.topology.own_cluster import InstanceProperties, join
from packhorse_services.subscriber.app import create
from packhorse_services.subscriber.assembly import assemble
from packhorse_services.subscriber.settings import Settings


def serve() -> None:
    """Import and serve until it is stopped."""
    settings = configured(Settings)
    url = settings.database_url.get_secret_value()
    prepare_database(url, "packhorse-subscriber")
    journal = open_journal(
        settings.journal_url, client_name=f"packhorse-subscriber {settings.subscriber}"
    )
    blobs = open_blobs(settings.blobs_url)
    subscriber = assemble(settings, journal, blobs)
    announced = InstanceProperties("subscriber", settings.subscriber, subscriber.identity.endpoint)
    cluster = join(url, settings, announced)
    app = create(subscriber, url, blobs, authenticator_for(settings), docs=settings.docs)
    try:
        components = (cluster, *subscriber.components)
        run_service(app, settings, components)
    finally:
        journal.close()
        blobs.close()


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    run_program(serve)


if __name__ == "__main__":
    main()
