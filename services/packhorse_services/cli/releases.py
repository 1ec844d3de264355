"""`packhorse release …`: what goes out together, later; one package each."""

from dataclasses import dataclass
from typing import Annotated, cast

import typer

from packhorse.client.calls import distributing
from packhorse.client.exchange import Document
from packhorse.runtime.command_options import with_options
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.options import Key, ReleaseName, Timeout, WaitForAll
from packhorse_services.cli.distribute.command import (
    Action,
    ActionName,
    At,
    Deep,
    To,
    await_distributed,
)

release = typer.Typer(
    help="Plan what goes out together, later, in one package.", no_args_is_help=True
)

NewName = Annotated[str, typer.Argument(help="Letters, digits, '.', '_' and '-'.")]
Paths = Annotated[list[str] | None, typer.Argument(help="Nodes of the author.")]
SomePaths = Annotated[list[str], typer.Argument(help="Nodes of the author.")]


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """What is in a new release, and when it goes out."""

    deep: Deep = False
    action: Action = ActionName.ADD
    at: At = None
    to: To = None
    key: Key = None


@release.command("create")
@with_options
def create(
    context: typer.Context, *, name: NewName, paths: Paths = None, options: ReleaseOptions
) -> None:
    """Plan a release; without --at it waits until it is scheduled or sent."""
    shallow, below = _split(paths or [], deep=options.deep)
    with context.ensure_object(Connection).publisher() as publisher:
        planned = publisher.create_release(
            name,
            *shallow,
            deep=below,
            action=cast(distributing.Action, options.action.value.upper()),
            at=options.at,
            to=options.to or (),
            key=options.key,
        )
    _report(planned)


@release.command("add")
def add(context: typer.Context, named: ReleaseName, paths: SomePaths, deep: Deep = False) -> None:
    """Add paths to a release that is not sent."""
    shallow, below = _split(paths, deep=deep)
    with context.ensure_object(Connection).publisher() as publisher:
        _report(publisher.add_to_release(named, *shallow, deep=below))


@release.command("remove")
def remove(context: typer.Context, named: ReleaseName, paths: SomePaths) -> None:
    """Take paths out of a release that is not sent."""
    with context.ensure_object(Connection).publisher() as publisher:
        _report(publisher.remove_from_release(named, *paths))


@release.command("schedule")
def schedule(
    context: typer.Context,
    named: ReleaseName,
    at: At = None,
    never: Annotated[
        bool, typer.Option("--never", help="Not before it is scheduled again, or sent.")
    ] = False,
) -> None:
    """Let a release go out at another moment; one that failed is tried again then."""
    if (at is None) is not never:
        raise CommandFailed("name a moment with --at, or --never", Exit.USAGE)
    with context.ensure_object(Connection).publisher() as publisher:
        _report(publisher.reschedule_release(named, at))


@release.command("send")
def send(
    context: typer.Context, named: ReleaseName, wait: WaitForAll = False, timeout: Timeout = 60.0
) -> None:
    """Let a release go out at once, and print the distribution's id."""
    with context.ensure_object(Connection).publisher() as publisher:
        sent = publisher.send_release(named)
        output.line(sent["id"])
        if wait:
            await_distributed(publisher, sent["id"], timeout)


@release.command("cancel")
def cancel(context: typer.Context, named: ReleaseName) -> None:
    """Let a release not go out."""
    with context.ensure_object(Connection).publisher() as publisher:
        _report(publisher.cancel_release(named))


def _split(paths: list[str], *, deep: bool) -> tuple[list[str], list[str]]:
    return ([], paths) if deep else (paths, [])


def _report(found: Document) -> None:
    output.line(found["id"])
    when = "" if found["at"] is None else f" at {found['at']}"
    named = found["name"] or "it"
    count = len(found["paths"]) + len(found["deep_paths"])
    output.report(f"{named} is {found['state']}{when}, with {count} paths")
