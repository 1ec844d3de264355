"""`packhorse-jobs`, and `python -m packhorse_services.jobs`."""

from packhorse.db.prepare import prepare_database
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.serve import configured, run_program, run_service
from packhorse_services.jobs.assembly import assemble
from packhorse_services.jobs.settings import Settings


def serve() -> None:
    """Take part in the cluster of the database, and serve over HTTP."""
    settings = configured(Settings)
    authenticator = authenticator_for(settings)
    prepare_database(settings.database_url.get_secret_value(), "packhorse-jobs")
    service = assemble(settings, authenticator)
    run_service(service.app, settings, service.components)


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    run_program(serve)


if __name__ == "__main__":
    main()
