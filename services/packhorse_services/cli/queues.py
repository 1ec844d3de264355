"""`packhorse get …`: queues, subscribers, distributions and commands, as tables or JSON."""

from dataclasses import dataclass
from typing import Annotated

import typer

from packhorse.client.calls.queues import points_of
from packhorse.client.exchange import gathered, segment, with_query
from packhorse.runtime.command_options import with_options
from packhorse_services.cli.client import completion, views
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.options import (
    Cursor,
    NewestFirst,
    OldestFirst,
    Output,
    ReleaseName,
    SubscriberName,
    Watch,
)
from packhorse_services.cli.client.output import again
from packhorse_services.cli.client.views import Format, View

get = typer.Typer(
    help="Show queues, subscribers, distributions, instances, jobs.", no_args_is_help=True
)

# Which packages of a queue are shown.
HasPath = Annotated[
    str | None, typer.Option(help="Only those with a path that is this one or lies below it.")
]
OfAction = Annotated[
    str | None, typer.Option(help="Only those of this action: ADD, DELETE, INVALIDATE.")
]

# Which distributions are shown.
Distributed = Annotated[
    str | None, typer.Option(help="With a path that is this one or lies below it.")
]
Action = Annotated[str | None, typer.Option(help="add, delete, invalidate or test.")]
User = Annotated[str | None, typer.Option(help="Asked for by this one.")]
State = Annotated[
    str | None,
    typer.Option(help="accepted, queued, distributed or partly_distributed."),
]

_PAGE = 1_000


@get.command("queues")
def get_queues(context: typer.Context, form: Output = Format.TABLE, watch: Watch = False) -> None:
    """Show the queue of every subscriber."""
    _show(context, "/queues", views.QUEUES, form, watch=watch)


@dataclass(frozen=True, kw_only=True)
class QueueSelection:
    """Which packages of a queue are shown."""

    path_prefix: HasPath = None
    action: OfAction = None
    cursor: Cursor = None


@get.command("queue")
@with_options
def get_queue(
    context: typer.Context,
    *,
    name: SubscriberName,
    form: Output = Format.TABLE,
    limit: OldestFirst = 100,
    selected: QueueSelection,
    watch: Watch = False,
) -> None:
    """Show the packages that a subscriber has still to import, oldest first."""
    requested = {
        "path_prefix": selected.path_prefix,
        "action": selected.action and selected.action.upper(),
        "cursor": selected.cursor,
    }
    path = with_query(f"/queues/{segment(name)}", limit=limit, **requested)
    _show(context, path, views.QUEUE, form, watch=watch)


@get.command("queue-history")
def get_queue_history(
    context: typer.Context,
    name: SubscriberName,
    *,
    form: Output = Format.TABLE,
    hours: Annotated[int, typer.Option(min=1, max=24, help="Of the last hours.")] = 1,
    points: Annotated[int, typer.Option(min=1, max=120, help="At most so many.")] = 12,
) -> None:
    """Show how far behind a subscriber was, and how many packages a minute it was done with."""
    with context.ensure_object(Connection).publisher() as publisher:
        found = publisher.queue_history(name, hours=hours, points=points)
    views.HISTORY.show({"history": points_of(found)}, form)


@get.command("errors")
def get_errors(
    context: typer.Context,
    name: SubscriberName,
    *,
    form: Output = Format.TABLE,
    limit: OldestFirst = 100,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show the packages that a subscriber gave up on."""
    path = with_query(f"/queues/{segment(name)}/errors", limit=limit, cursor=cursor)
    _show(context, path, views.ERRORS, form, watch=watch)


@get.command("subscribers")
def get_subscribers(
    context: typer.Context, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show who announced itself within a day."""
    _show(context, "/subscribers", views.SUBSCRIBERS, form, watch=watch)


@dataclass(frozen=True, kw_only=True)
class DistributionSelection:
    """Which distributions are shown."""

    path_prefix: Distributed = None
    node: Annotated[
        str | None, typer.Option(help="That had this node: by its path, or in a subtree.")
    ] = None
    action: Action = None
    user: User = None
    state: State = None


@get.command("distributions")
@with_options
def get_distributions(
    context: typer.Context,
    *,
    selected: DistributionSelection,
    form: Output = Format.TABLE,
    limit: NewestFirst = 20,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show what was distributed, newest first."""
    requested = {
        "path_prefix": selected.path_prefix,
        "node": selected.node,
        "action": selected.action and selected.action.upper(),
        "user": selected.user,
        "state": selected.state and selected.state.upper(),
        "cursor": cursor,
    }
    path = with_query("/distributions", **requested)
    with context.ensure_object(Connection).publisher() as publisher:

        def show() -> None:  # a filter makes pages short
            views.DISTRIBUTIONS.show(
                publisher.run(gathered(path, "distributions", limit, _PAGE, "publisher")), form
            )

        again(show, watch=watch)


@get.command("distribution")
def get_distribution(
    context: typer.Context,
    identifier: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="What distribute printed.", autocompletion=completion.distributions
        ),
    ],
    form: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Show what became of a distribution at each subscriber."""
    path = f"/distributions/{segment(identifier)}"
    if form is Format.NAME:
        _show_one(context, path, views.DISTRIBUTIONS, form, watch=watch)
    else:
        _show(context, path, views.DISTRIBUTION, form, watch=watch)


@get.command("releases")
def get_releases(
    context: typer.Context,
    *,
    state: Annotated[
        str | None, typer.Option(help="draft, scheduled, sent, failed or cancelled.")
    ] = None,
    form: Output = Format.TABLE,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, next ones first.")] = 100,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show what goes out later, by its moment, and what became of it."""
    path = with_query("/releases", state=state and state.upper(), cursor=cursor, limit=limit)
    _show(context, path, views.RELEASES, form, watch=watch)


@get.command("release")
def get_release(
    context: typer.Context, named: ReleaseName, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show a release."""
    _show_one(context, f"/releases/{segment(named)}", views.RELEASES, form, watch=watch)


@get.command("producer")
def get_producer(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The producer; it is yours.")],
    form: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Show how far a producer has come."""
    _show_one(context, f"/producers/{segment(name)}", views.PRODUCER, form, watch=watch)


@get.command("commands")
def get_commands(
    context: typer.Context,
    *,
    subscriber: Annotated[
        str | None,
        typer.Option(help="Given to this one.", autocompletion=completion.subscribers),
    ] = None,
    form: Output = Format.TABLE,
    limit: NewestFirst = 20,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show what operators did in the last 30 days, newest first."""
    path = with_query("/commands", subscriber=subscriber, cursor=cursor, limit=limit)
    _show(context, path, views.COMMANDS, form, watch=watch)


@get.command("command")
def get_command(
    context: typer.Context,
    identifier: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="What the command printed.", autocompletion=completion.commands
        ),
    ],
    form: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Show what became of a command."""
    _show_one(context, f"/commands/{segment(identifier)}", views.COMMANDS, form, watch=watch)


def _show(context: typer.Context, path: str, view: View, form: Format, *, watch: bool) -> None:
    with context.ensure_object(Connection).publisher() as publisher:
        again(lambda: view.show(publisher.get(path), form), watch=watch)


def _show_one(context: typer.Context, path: str, view: View, form: Format, *, watch: bool) -> None:
    with context.ensure_object(Connection).publisher() as publisher:
        again(lambda: view.show_one(publisher.get(path), form), watch=watch)
