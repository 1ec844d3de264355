"""`packhorse-console`, and `python -m packhorse_services.console`."""

import typer

from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import loaded
from packhorse.runtime.serve import run_service
from packhorse.runtime.startup import plain_refusals
from packhorse_services.console.app import console
from packhorse_services.console.settings import Settings

commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Show queues, distributions and failures as pages, and let operators act there.",
)


@commands.command()
def serve() -> None:
    """Serve the pages over HTTP; what they show is asked of the other services."""
    settings = loaded(Settings)
    logs.configure(settings.log_format, settings.log_level)
    run_service(console(settings, authenticator_for(settings)), settings)


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    with plain_refusals():
        commands()


if __name__ == "__main__":
    main()
