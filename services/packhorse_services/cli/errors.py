"""`packhorse errors redistribute`: what a subscriber gave up on, once more, to all."""

from typing import Annotated
from urllib.parse import quote

import typer

from packhorse_services.cli import distribute, output
from packhorse_services.cli.connection import Connection

errors = typer.Typer(help="What subscribers gave up on; see `get errors`.", no_args_is_help=True)


@errors.command("redistribute")
def redistribute(
    context: typer.Context,
    *,
    subscriber: Annotated[str, typer.Argument(help="The subscriber.")],
    offset: Annotated[int, typer.Argument(min=0, help="The package's offset in its error queue.")],
    wait: Annotated[bool, typer.Option("--wait", help="Until all subscribers have it.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait.")] = 60.0,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: repeat a request with the same one.")
    ] = None,
) -> None:
    """Distribute the paths of a package again, to all, and print the new distribution's id."""
    path = f"/queues/{quote(subscriber, safe='')}/errors/{offset}/redistribute"
    headers = {"Idempotency-Key": distribute.checked_key(key)}
    with context.ensure_object(Connection).publisher() as publisher:
        accepted = publisher.post(path, {}, headers)
        output.line(accepted["id"])
        if wait:
            distribute.wait(publisher, accepted["id"], timeout)
