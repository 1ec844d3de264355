"""`packhorse get …` and `packhorse clear …`: what waits where, and making it wait no more."""

import time
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import httpx
import typer

from packhorse_services.cli import clearing, output, views
from packhorse_services.cli.api import Api
from packhorse_services.cli.connection import Connection
from packhorse_services.cli.views import Format, View

get = typer.Typer(
    help="Show queues, subscribers, distributions, instances, jobs.", no_args_is_help=True
)
clear = typer.Typer(help="Clear a queue.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The subscriber.")]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to show it.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many, oldest first.")]
Cursor = Annotated[
    str | None, typer.Option(help="Go on where an earlier page ended; stderr named its cursor.")
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again.")]

_WATCH_S = 2.0


@get.command("queues")
def get_queues(context: typer.Context, form: Output = Format.TABLE, watch: Watch = False) -> None:
    """Show the queue of every subscriber."""
    _show(context, "/queues", views.QUEUES, form, watch=watch)


@get.command("queue")
def get_queue(
    context: typer.Context,
    name: Name,
    *,
    form: Output = Format.TABLE,
    limit: Limit = 100,
    path_prefix: Annotated[
        str | None, typer.Option(help="Only those with a path that is this one or lies below it.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Only those of this action: ADD, DELETE, INVALIDATE.")
    ] = None,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show the packages that a subscriber has still to import, oldest first."""
    filters = {"path_prefix": path_prefix, "action": action and action.upper(), "cursor": cursor}
    given = {key: one for key, one in filters.items() if one is not None}
    asked = urlencode({"limit": limit} | given)
    _show(context, f"/queues/{_segment(name)}?{asked}", views.QUEUE, form, watch=watch)


@get.command("errors")
def get_errors(
    context: typer.Context,
    name: Name,
    *,
    form: Output = Format.TABLE,
    limit: Limit = 100,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show the packages that a subscriber gave up on."""
    given = {} if cursor is None else {"cursor": cursor}
    asked = urlencode({"limit": limit} | given)
    _show(context, f"/queues/{_segment(name)}/errors?{asked}", views.ERRORS, form, watch=watch)


@get.command("subscribers")
def get_subscribers(
    context: typer.Context, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show who announced itself within a day."""
    _show(context, "/subscribers", views.SUBSCRIBERS, form, watch=watch)


@get.command("distributions")
def get_distributions(
    context: typer.Context,
    *,
    path_prefix: Annotated[
        str | None, typer.Option(help="With a path that is this one or lies below it.")
    ] = None,
    action: Annotated[str | None, typer.Option(help="add, delete, invalidate or test.")] = None,
    user: Annotated[str | None, typer.Option(help="Asked for by this one.")] = None,
    state: Annotated[
        str | None, typer.Option(help="accepted, queued or distributed, as it is now.")
    ] = None,
    form: Output = Format.TABLE,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 20,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show what was distributed, newest first."""
    asked = {
        "path_prefix": path_prefix,
        "action": action and action.upper(),
        "user": user,
        "state": state and state.upper(),
        "cursor": cursor,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    path = f"/distributions?{urlencode({**given, 'limit': limit})}"
    with context.ensure_object(Connection).publisher() as publisher:
        again(
            lambda: views.DISTRIBUTIONS.show(_gathered(publisher, path, limit), form), watch=watch
        )


def _gathered(publisher: Api, path: str, limit: int) -> dict[str, Any]:
    """Return one document of up to `limit` distributions: a filter makes pages short."""
    document: dict[str, Any] = publisher.get(path)
    found = document["distributions"]
    while document["next"] and len(found) < limit:
        following = httpx.URL(document["next"]).copy_set_param("limit", limit - len(found))
        document = publisher.get(str(following))
        found += document["distributions"]
    return {**document, "distributions": found}


@get.command("distribution")
def get_distribution(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="What distribute printed.")],
    form: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Show what became of a distribution at each subscriber."""
    _show(context, f"/distributions/{_segment(identifier)}", views.DISTRIBUTION, form, watch=watch)


@get.command("producer")
def get_producer(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The producer; it is yours.")],
    form: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Show how far a producer has come."""
    with context.ensure_object(Connection).publisher() as publisher:
        path = f"/producers/{_segment(name)}"
        again(lambda: views.PRODUCER.show_one(publisher.get(path), form), watch=watch)


@get.command("commands")
def get_commands(
    context: typer.Context,
    *,
    subscriber: Annotated[str | None, typer.Option(help="Given to this one.")] = None,
    form: Output = Format.TABLE,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 20,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show what operators did in the last 30 days, newest first."""
    asked = {"subscriber": subscriber, "cursor": cursor}
    given = {name: value for name, value in asked.items() if value is not None}
    path = f"/commands?{urlencode({**given, 'limit': limit})}"
    _show(context, path, views.COMMANDS, form, watch=watch)


@get.command("command")
def get_command(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="What the command printed.")],
    form: Output = Format.TABLE,
    watch: Watch = False,
) -> None:
    """Show what became of a command."""
    with context.ensure_object(Connection).publisher() as publisher:
        path = f"/commands/{_segment(identifier)}"
        again(lambda: views.COMMANDS.show_one(publisher.get(path), form), watch=watch)


@clear.command("queue")
def clear_queue(
    context: typer.Context,
    name: Name,
    *,
    up_to: Annotated[
        int | None, typer.Option(min=0, show_default="the newest now", help="The last offset.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Print how many were removed.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait.")] = 60.0,
) -> None:
    """Remove what a subscriber has still to import from the publisher agent that is asked.

    Only an editable subscriber does it.
    """
    with context.ensure_object(Connection).publisher() as publisher:
        clearing.clear(publisher, name, up_to, ask=not yes, wait_s=timeout if wait else None)


def _show(context: typer.Context, path: str, view: View, form: Format, *, watch: bool) -> None:
    with context.ensure_object(Connection).publisher() as publisher:
        again(lambda: view.show(publisher.get(path), form), watch=watch)


def again(show: Callable[[], Any], *, watch: bool) -> None:
    """Show something once, or with `watch` every 2 s until Ctrl-C."""
    show()
    while watch:
        time.sleep(_WATCH_S)
        if output.data.is_terminal:
            output.data.clear()
        show()


def _segment(name: str) -> str:
    return quote(name, safe="")
