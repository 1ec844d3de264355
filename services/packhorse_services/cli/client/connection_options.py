"""`--data`, `--server`, `--token` and `--token-file` behind the verb, as well as before it."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from packhorse_services.cli.client.connection import Connection

_FIELDS = {
    "data": ("data", Path),
    "server": ("server", str),
    "token": ("token_text", str),
    "token_file": ("token_file", Path),
}
"""The options by their names, and where a connection keeps them."""

_WITHOUT = {"up", "demo"}
"""Commands that connect to nothing."""


def behind_every_verb(command: Any) -> Any:
    """Let every command below a group take the group's options that say whom to ask."""
    options = [param for param in command.params if param.name in _FIELDS]
    _add(command, [_copied(option) for option in options])
    return command


def connection_of(context: typer.Context) -> Connection:
    """Return what was said before the verb, also while a shell completes a line."""
    if isinstance(context.obj, Connection):
        return context.obj
    said = context.find_root().params
    given = {field: kind(said[name]) for name, (field, kind) in _FIELDS.items() if said.get(name)}
    return Connection(**given)


def _add(command: Any, options: list[Any]) -> None:
    for name, child in getattr(command, "commands", {}).items():
        if getattr(child, "commands", None) is not None:
            _add(child, options)
        elif name not in _WITHOUT:
            taken = {text for param in child.params for text in param.opts}
            child.params += [one for one in options if not taken & set(one.opts)]


def _copied(option: Any) -> Any:
    copied = copy.copy(option)
    copied.envvar = None  # the environment has had its say before the verb
    copied.expose_value = False
    copied.callback = _merge
    copied.rich_help_panel = "Whom to ask"
    return copied


def _merge(context: typer.Context, param: Any, value: Any) -> None:
    if value is not None and param.name is not None:
        field, kind = _FIELDS[param.name]
        said: dict[str, Any] = {field: kind(value)}
        if field == "token_file":
            said["token_text"] = None  # of the environment
        context.obj = replace(connection_of(context), **said)
