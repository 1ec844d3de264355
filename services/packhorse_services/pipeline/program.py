"""The commands of `packhorse-pipeline`: a task each, and what serves and submits."""

from importlib import import_module

import typer

_COMMANDS = {
    "jars": "engine.shared_classes.jars",
    "archive": "archive.command.archive",
    "bulk": "bulk.command.bulk",
    "measures": "measures.command.measures",
    "upkeep": "upkeep.command.upkeep",
    "serve": "reports.app.serve",
    "report": "reports.commands.report",
    "submit": "submit.submit",
    "audit": "audit.commands.audit_command",
    "mark": "sweep.commands.mark_command",
    "sweep": "sweep.commands.sweep_command",
    "snapshot": "snapshot.command.snapshot",
    "at": "at.command.at",
    "worker": "worker.command.worker",
}
"""What runs each of them."""
_PASSED_ON = {"allow_extra_args": True, "allow_interspersed_args": False}


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
        module, _, function = _COMMANDS[one].rpartition(".")
        command = getattr(import_module(f"{__package__}.{module}"), function)
        found.command(one, context_settings=_PASSED_ON if one == "submit" else None)(command)
    return found


def _pipeline() -> None:
    """Take the command that follows."""
