"""`packhorse errors redistribute`: what a subscriber gave up on, once more, to all."""

from typing import Annotated

import typer

from packhorse_services.cli import distribute, output
from packhorse_services.cli.api import segment
from packhorse_services.cli.connection import Connection
from packhorse_services.cli.options import Key, SubscriberName, Timeout, WaitForAll

errors = typer.Typer(help="What subscribers gave up on; see `get errors`.", no_args_is_help=True)


@errors.command("redistribute")
def redistribute(
    context: typer.Context,
    *,
    subscriber: SubscriberName,
    offset: Annotated[int, typer.Argument(min=0, help="The package's offset in its error queue.")],
    wait: WaitForAll = False,
    timeout: Timeout = 60.0,
    key: Key = None,
) -> None:
    """Distribute the paths of a package again, to all, and print the new distribution's id."""
    path = f"/queues/{segment(subscriber)}/errors/{offset}/redistribute"
    headers = {"Idempotency-Key": distribute.checked_key(key)}
    with context.ensure_object(Connection).publisher() as publisher:
        accepted = publisher.post(path, {}, headers)
        output.line(accepted["id"])
        if wait:
            distribute.wait(publisher, accepted["id"], timeout)
