"""The command line's grammar: verbs, their arguments and options, and the exit codes."""

from collections.abc import Sequence
from typing import Annotated

import stamina
import typer

import packhorse
from packhorse.errors import PackhorseError
from packhorse_services.cli import output, topics
from packhorse_services.cli.api import CommandFailed, Exit
from packhorse_services.cli.connection import Connection
from packhorse_services.cli.data_directory import DataInUse
from packhorse_services.cli.settings import (
    DataOption,
    JournalOption,
    ServerOption,
    TokenFileOption,
    TokenOption,
    TopicPrefixOption,
    default_data,
)
from packhorse_services.cli.stack import StackOptions
from packhorse_services.cli.up import up as run_stack

app = typer.Typer(
    help="Distribute content from one author to many subscribers, exactly once, in order.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topics_app = typer.Typer(help="The journal's topics.", no_args_is_help=True)
app.add_typer(topics_app, name="topics")


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; errors are told on stderr."""
    stamina.instrumentation.set_on_retry_hooks([])  # they would print to stdout, which is data's
    try:
        app(args=list(arguments), prog_name="packhorse")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.FAILED
    except PackhorseError as error:
        output.complain(str(error))
        return _code_of(error)
    return 0


def _code_of(error: PackhorseError) -> Exit:
    if isinstance(error, CommandFailed):
        return error.code
    return Exit.CONFLICT if isinstance(error, DataInUse) else Exit.FAILED


def _show_version(wanted: bool) -> None:
    if wanted:
        output.line(f"packhorse {packhorse.__version__}")
        raise typer.Exit


@app.callback()
def _before_any_command(
    context: typer.Context,
    *,
    data: DataOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    context.obj = Connection(data, server, token, token_file)


@app.command()
def up(
    context: typer.Context,
    *,
    data: DataOption = None,
    port: Annotated[
        int, typer.Option(min=0, max=65000, help="The first of the ports; 0 takes free ones.")
    ] = 8080,
    subscribers: Annotated[int, typer.Option(min=0, max=100, help="How many.")] = 3,
    journal: Annotated[
        str, typer.Option(help="postgresql (the embedded server), postgresql://… or kafka://…")
    ] = "postgresql",
    blobs: Annotated[
        str | None, typer.Option(help="A folder or s3://bucket.", show_default="DATA/blobs")
    ] = None,
    max_retries: Annotated[
        int, typer.Option(min=-1, help="Attempts after the first; -1 never gives up.")
    ] = -1,
    editable: Annotated[bool, typer.Option(help="Let queues be cleared.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line when everything is ready.")
    ] = False,
) -> None:
    """Start the embedded stack and stay until Ctrl-C."""
    folder = data or _connection(context).data or default_data()
    options = StackOptions(folder, port, subscribers, journal, blobs, max_retries, editable)
    run_stack(options, as_json=as_json)


@topics_app.command("create")
def topics_create(
    context: typer.Context,
    journal: JournalOption = None,
    topic_prefix: TopicPrefixOption = "aemdistribution",
) -> None:
    """Create the topics that are missing; those that exist stay as they are."""
    topics.create(_connection(context).journal(journal), topic_prefix)


@topics_app.command("check")
def topics_check(
    context: typer.Context,
    journal: JournalOption = None,
    topic_prefix: TopicPrefixOption = "aemdistribution",
) -> None:
    """Say what is wrong with the topics, and how to mend it."""
    topics.check(_connection(context).journal(journal), topic_prefix)


def _connection(context: typer.Context) -> Connection:
    return context.ensure_object(Connection)
