"""`packhorse-content`, and `python -m packhorse_services.content`."""

import sys

import typer

from packhorse.blobs.open import open_blobs
from packhorse.db.engine import open_engine
from packhorse.db.migrate import upgrade
from packhorse.errors import PackhorseError
from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.serve import run
from packhorse_services.content.app import create
from packhorse_services.content.settings import Settings, load

commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serve the author's content over HTTP, or move folders into it and out of it.",
)


@commands.callback(invoke_without_command=True)
def serve(context: typer.Context) -> None:
    """Serve over HTTP when no command is named."""
    if context.invoked_subcommand is not None:
        return
    settings = load()
    logs.configure(settings.log_format, settings.log_level)
    migrate(settings)
    app = create(
        settings.database_url.get_secret_value(),
        open_blobs(settings.blobs_url),
        authenticator_for(settings),
        max_blob_bytes=settings.max_blob_bytes,
        docs=settings.docs,
    )
    run(app, host=settings.host, port=settings.port)


def migrate(settings: Settings) -> None:
    """Bring the author's database to the newest schema."""
    engine = open_engine(settings.database_url.get_secret_value(), "packhorse-content")
    upgrade(engine)
    engine.dispose()


def main() -> None:
    """Run the program; an error that it expects becomes one line and exit code 1."""
    try:
        commands()
    except PackhorseError as error:
        sys.exit(f"packhorse-content: {error}")


if __name__ == "__main__":
    main()
