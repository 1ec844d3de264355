"""`packhorse-content`, and `python -m packhorse_services.content`."""

import sys
from typing import NoReturn

import psycopg
import typer

from packhorse.blobs.open import open_blobs
from packhorse.content.node import InvalidPath
from packhorse.db.prepare import prepare_database
from packhorse.errors import PackhorseError
from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import loaded
from packhorse.runtime.serve import run_service
from packhorse.runtime.startup import typed
from packhorse.topology.own_cluster import InstanceProperties, join
from packhorse_services.content.app import create
from packhorse_services.content.commands import export_command, import_command
from packhorse_services.content.settings import Settings
from packhorse_services.content.transfer.refusals import exit_code

commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Move folders and ZIP files into content and out of it. "
    "packhorse-content without a command serves the author's content over HTTP.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands.command("import")(import_command)
commands.command("export")(export_command)


@commands.callback(invoke_without_command=True)
def serve(context: typer.Context) -> None:
    """Serve over HTTP when no command is named."""
    if context.invoked_subcommand is not None:
        return
    settings = loaded(Settings)
    logs.configure(settings.log_format, settings.log_level)
    url = settings.database_url.get_secret_value()
    prepare_database(url, "packhorse-content")
    cluster = join(
        url, settings.topology, InstanceProperties("content", endpoint=settings.endpoint)
    )
    app = create(
        url,
        open_blobs(settings.blobs_url),
        authenticator_for(settings),
        max_blob_bytes=settings.max_blob_bytes,
        docs=settings.docs,
    )
    run_service(app, settings, (cluster,))


def main() -> None:
    """Run the program; an error that it expects becomes one line and the exit code for it."""
    try:
        commands(prog_name=typed("packhorse-content", "packhorse_services.content"))
    except InvalidPath as error:
        _refuse(str(error), 2)
    except (PackhorseError, psycopg.OperationalError) as error:
        _refuse(str(error).strip(), exit_code(error))


def _refuse(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"packhorse-content: {text}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
