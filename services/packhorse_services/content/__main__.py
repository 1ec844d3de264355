"""`packhorse-content`, and `python -m packhorse_services.content`."""

import sys
from typing import NoReturn

import psycopg
import typer

from packhorse.content.node import InvalidPath
from packhorse.db.connect import AWAY
from packhorse.errors import PackhorseError
from packhorse.runtime.startup import typed
from packhorse_services.content.commands import export_command, import_command
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
    from packhorse_services.content.app import run  # the other commands need no web framework

    run()


def main() -> None:
    """Run the program; an error that it expects becomes one line and the exit code for it."""
    try:
        commands(prog_name=typed("packhorse-content", "packhorse_services.content"))
    except InvalidPath as error:
        _refuse(str(error), 2)
    except psycopg.errors.IdleInTransactionSessionTimeout:
        _refuse("it was paused for too long within a transaction; run it again to go on", 1)
    except (PackhorseError, *AWAY) as error:
        _refuse(str(error).strip(), exit_code(error))


def _refuse(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"packhorse-content: {text}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
