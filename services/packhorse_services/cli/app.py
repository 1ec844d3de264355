"""The command line's grammar: verbs, their arguments and options, and the exit codes.

What only `up`, `demo` and `config check` need is imported by them: it takes longer than most
commands.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import stamina
import typer
from typer.core import TyperGroup

import packhorse
from packhorse.client.errors import NoAnswer
from packhorse.errors import PackhorseError
from packhorse.runtime.command_options import with_options
from packhorse.runtime.reasons import reason_of
from packhorse_services.cli import (
    clearing,
    documents,
    errors,
    events,
    operate,
    queues,
    releases,
    report,
    service_commands,
    topology,
)
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.connection_options import behind_every_verb
from packhorse_services.cli.client.data_directory import DataInUse
from packhorse_services.cli.client.failures import CommandFailed, Exit, exit_code
from packhorse_services.cli.client.settings import (
    DataOption,
    ServerOption,
    TokenFileOption,
    TokenOption,
)
from packhorse_services.cli.client.stack_options import StackOptions
from packhorse_services.cli.distribute.command import distribute
from packhorse_services.cli.distribute.comparing import compare
from packhorse_services.cli.jobs.commands import job
from packhorse_services.cli.topics.commands import topics


class PlainGroup(TyperGroup):
    """The root of all verbs: what a verb refuses is reported without the words of pydantic."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. Raises `typer.TyperException` for what it can't take."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            error.message = reason_of(error.message) + _only_command(error)
            raise


def _only_command(error: Any) -> str:
    """Return what to say where a group of one command was given something else."""
    where: Any = getattr(error, "ctx", None)
    commands = list(getattr(where and where.command, "commands", ()))
    if len(commands) != 1 or not error.message.startswith("No such command"):
        return ""
    return f" Say `{where.command_path} {commands[0]} …`."


app = typer.Typer(
    cls=PlainGroup,
    help="Distribute content from one author to many subscribers, exactly once, in order.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="What this command line would use.", no_args_is_help=True)
app.add_typer(queues.get, name="get")
queues.get.command("instances")(topology.get_instances)
app.add_typer(releases.release, name="release")
app.add_typer(clearing.clear, name="clear")
app.add_typer(operate.pause, name="pause")
app.add_typer(operate.resume, name="resume")
app.add_typer(operate.suspend, name="suspend")
app.add_typer(operate.stop, name="stop")
app.add_typer(operate.retry, name="retry")
app.add_typer(operate.forget, name="forget")
app.add_typer(operate.reset, name="reset")
app.add_typer(errors.errors, name="errors")
app.command("events")(events.follow_events)
app.command("report")(report.report)
app.command("openapi")(documents.openapi)
app.add_typer(topology.topology, name="topology")
app.add_typer(job, name="job")
app.add_typer(topics, name="topics")
app.add_typer(config_app, name="config")

AsJson = Annotated[bool, typer.Option("--json", help="Print one line when everything is ready.")]

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; errors are reported on stderr."""
    stamina.instrumentation.set_on_retry_hooks([])  # they would print to stdout, which is data's
    try:
        command = behind_every_verb(typer.main.get_command(app))
        command(args=list(arguments), prog_name="packhorse")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.FAILED
    except PackhorseError as error:
        output.complain(_text_of(error))
        return _code_of(error)
    except OSError as error:  # a full disk behind stdout, or a file that is not what it was
        output.complain(str(error))
        output.give_up()
        return Exit.FAILED
    return 0


def _text_of(error: PackhorseError) -> str:
    """Return what an error says, of a request that has a key with the option that repeats it."""
    if not isinstance(error, NoAnswer) or error.key is None:
        return str(error)
    return (
        f"{str(error).splitlines()[0]}\nNobody knows whether it was accepted. Repeat the command "
        f"with --key {error.key}: then it is done once."
    )


def _code_of(error: PackhorseError) -> Exit:
    return Exit.CONFLICT if isinstance(error, DataInUse) else exit_code(error)


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
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if _is_said(context, "token_file") and not _is_said(context, "token"):
        token = None  # of the environment, which an option wins over
    context.obj = Connection(data, server, token, token_file)


def _is_said(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


@app.command()
@with_options
def up(context: typer.Context, *, chosen: StackOptions, as_json: AsJson = False) -> None:
    """Start the embedded stack and stay until Ctrl-C."""
    from packhorse_services.cli.stack.up import up as run_stack

    options = replace(chosen, data=chosen.data or _connection(context).data)
    run_stack(options, as_json=as_json)


@app.command("demo")
def demo(
    content: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="A folder to distribute.",
            show_default="files of Python and PostgreSQL",
        ),
    ] = None,
    subscribers: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 3,
    data: Annotated[
        Path | None, typer.Option(help="Keep the stack's data here.", show_default="nowhere")
    ] = None,
    stay: Annotated[bool, typer.Option("--stay", help="Do not end before Ctrl-C.")] = False,
) -> None:
    """Distribute real content on a stack of its own, compare, and end."""
    from packhorse_services.cli.demo.command import demo as run_demo

    run_demo(content, subscribers, data, stay=stay)


app.command("distribute")(distribute)
app.command("compare")(compare)


@app.command("token")
def token(context: typer.Context) -> None:
    """Print the token that commands send, for use with curl."""
    connection = _connection(context)
    found = connection.token()
    if found is None:
        raise CommandFailed(connection.no_token(), Exit.NOT_FOUND)
    output.line(found)


@app.command("content", context_settings=_PASSED_ON, add_help_option=False)
def content(context: typer.Context) -> None:
    """Import folders and ZIP files into content, and export it; --server is a content service."""
    service_commands.content(_connection(context), context.args or ["--help"])


@app.command("cleanup", context_settings=_PASSED_ON, add_help_option=False)
def cleanup(context: typer.Context) -> None:
    """Remove stored packages that the journal has forgotten, now: cleanup run [--dry-run]."""
    service_commands.become(_connection(context), "cleanup", context.args or ["--help"])


@app.command("pipeline", context_settings=_PASSED_ON, add_help_option=False)
def pipeline(context: typer.Context) -> None:
    """Archive, measure, audit, take snapshots, with Spark: pipeline TASK [OPTIONS]."""
    service_commands.require_options_of_tasks(context.args)
    service_commands.pipeline(_connection(context), context.args or ["--help"])


@config_app.command("check")
def config_check(context: typer.Context) -> None:
    """Print the effective settings, secrets masked, and ask the server whether they work."""
    from packhorse_services.cli import configuration

    configuration.check(_connection(context))


def _connection(context: typer.Context) -> Connection:
    return context.ensure_object(Connection)
