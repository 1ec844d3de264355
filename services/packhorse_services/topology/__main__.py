"""`packhorse-topology`, and `python -m packhorse_services.topology`."""

import typer

from packhorse.db.prepare import prepare_database
from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import loaded
from packhorse.runtime.serve import run_service
from packhorse.runtime.startup import plain_refusals
from packhorse_services.topology.assembly import assemble
from packhorse_services.topology.settings import Settings

commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Show who is alive and who leads, over HTTP, and connect this cluster to others.",
)


@commands.command()
def serve() -> None:
    """Take part in the cluster of the database, and serve over HTTP."""
    settings = loaded(Settings)
    logs.configure(settings.log_format, settings.log_level)
    authenticator = authenticator_for(settings)
    prepare_database(settings.database_url.get_secret_value(), "packhorse-topology")
    service = assemble(settings, authenticator)
    run_service(service.app, settings, service.components)


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    with plain_refusals():
        commands()


if __name__ == "__main__":
    main()
