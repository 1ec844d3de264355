"""The commands of `packhorse-pipeline`: a task each, several in a row, what serves and submits."""

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Annotated, Any

import typer

from packhorse.runtime import logs
from packhorse.runtime.configuration import loaded
from packhorse.runtime.startup import CANT_START_NOW
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.settings import Settings

_COMMANDS = {
    "jars": "engine.shared_classes.jars",
    "archive": "archive.command.archive",
    "bulk": "bulk.command.bulk",
    "measures": "measures.task.measures",
    "upkeep": "upkeep.command.upkeep",
    "serve": "reports.app.serve",
    "report": "reports.commands.report",
    "submit": "submit.submit",
    "audit": "audit.commands.audit_command",
    "mark": "sweep.commands.mark_command",
    "sweep": "sweep.commands.sweep_command",
    "snapshot": "snapshot.command.snapshot",
    "at": "at.command.at",
    "worker": "worker.worker",
    "run": "program.run",
}
"""What runs each of them."""
_CONTEXTS = {
    "submit": {"allow_extra_args": True, "allow_interspersed_args": False},
    "run": {"allow_interspersed_args": False},  # options that lack their quotes are told as such
}
_TOGETHER = ("archive", "measures", "upkeep", "snapshot", "audit", "mark")


def program(name: str = "") -> typer.Typer:
    """Return the program with the command of this name, or with all if no command has it.

    To import one takes a second of the processor's time, and two more to import all of them.
    """
    found = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        help="Archive the journal, and work on the archive, with Spark.",
    )
    found.callback()(_pipeline)
    for one in [name] if name in _COMMANDS else _COMMANDS:
        found.command(one, context_settings=_CONTEXTS.get(one))(_command(one))
    return found


def _pipeline() -> None:
    """Take the command that follows."""


def run(
    context: typer.Context,
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK",
            help=f"{', '.join(_TOGETHER)}; one with options in quotes, such as 'snapshot --keep 3'",
        ),
    ],
) -> None:
    """Run tasks one after the other in one Spark session, until one does not exit with 0.

    Each of them as a program of its own would start a JVM.
    """
    from packhorse_services.pipeline.engine.session import one_session

    settings = loaded(Settings)
    logs.configure(settings.log_format, settings.log_level)
    with ExitStack() as parsed, one_session():
        contexts = [parsed.enter_context(_parsed(context, task)) for task in tasks]
        for done, each in enumerate(contexts):
            _run(each, [one.info_name for one in contexts[done + 1 :]])


def _run(context: Any, left: Sequence[str]) -> None:
    """Run one; if it does not return, name on stderr what is `left`, which is then not done."""
    try:
        context.command.invoke(context)
    except BaseException as error:
        if left:
            typer.echo(f"not run: {', '.join(left)}", err=True)
            if isinstance(error, typer.Exit) and not error.exit_code:  # a signal ended it in order
                raise typer.Exit(CANT_START_NOW) from None
        raise


def _parsed(parent: typer.Context, task: str) -> Any:
    """Return the context of a task; what is wrong with its options is told before anything runs."""
    try:
        name, *options = shlex.split(task) or [""]
    except ValueError as error:
        raise TaskRefused(f"{task[:80]!r} can't be read: {error}") from None
    if name not in _TOGETHER:
        raise TaskRefused(
            f"run takes {', '.join(_TOGETHER)}, and not {name[:80]!r}; "
            "write a task with its options in quotes"
        )
    alone = typer.Typer(add_completion=False)
    alone.command(name)(_command(name))
    return typer.main.get_command(alone).make_context(name, options, parent=parent)


def _command(name: str) -> Callable[..., Any]:
    module, _, function = _COMMANDS[name].rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), function)
    return found
