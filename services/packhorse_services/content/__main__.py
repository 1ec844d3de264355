"""`packhorse-content`, and `python -m packhorse_services.content`."""

import sys

import psycopg
import typer
from sqlalchemy.exc import OperationalError

from packhorse.blobs.open import open_blobs
from packhorse.errors import PackhorseError
from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.serve import run
from packhorse.runtime.startup import typed
from packhorse.topology.own_cluster import Announced, join
from packhorse_services.content.app import create
from packhorse_services.content.migration import migrate
from packhorse_services.content.settings import load
from packhorse_services.content.transfer import export_command, import_command

commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serve the author's content over HTTP, or move folders into it and out of it.",
)
commands.command("import")(import_command)
commands.command("export")(export_command)


@commands.callback(invoke_without_command=True)
def serve(context: typer.Context) -> None:
    """Serve over HTTP when no command is named."""
    if context.invoked_subcommand is not None:
        return
    settings = load()
    logs.configure(settings.log_format, settings.log_level)
    migrate(settings)
    url = settings.database_url.get_secret_value()
    cluster = join(url, settings.topology, Announced("content", endpoint=settings.endpoint))
    app = create(
        url,
        open_blobs(settings.blobs_url),
        authenticator_for(settings),
        max_blob_bytes=settings.max_blob_bytes,
        docs=settings.docs,
    )
    run(app, host=settings.host, port=settings.port, components=(cluster,))


def main() -> None:
    """Run the program; an error that it expects becomes one line and exit code 1."""
    try:
        commands(prog_name=typed("packhorse-content", "packhorse_services.content"))
    except (PackhorseError, psycopg.OperationalError, OperationalError) as error:
        sys.exit(f"packhorse-content: {str(error).strip()}")


if __name__ == "__main__":
    main()
