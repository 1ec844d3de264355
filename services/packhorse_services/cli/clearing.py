"""`packhorse clear queue`: what it would remove, the question, and the command."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from packhorse.client.blocking import Client
from packhorse.client.exchange import segment
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.options import SubscriberName, Timeout, Yes

clear = typer.Typer(help="Clear a queue.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Covered:
    """How many packages a bound covers, or at least covers."""

    packages: int
    exact: bool

    def __str__(self) -> str:
        """Return the number as a sentence has it: `at least 12 waiting packages`."""
        noun = "waiting package" if self.packages == 1 else "waiting packages"
        return f"{'' if self.exact else 'at least '}{self.packages} {noun}"


@clear.command("queue")
def clear_queue(
    context: typer.Context,
    name: SubscriberName,
    *,
    up_to: Annotated[
        int | None, typer.Option(min=0, show_default="the newest now", help="The last offset.")
    ] = None,
    yes: Yes = False,
    wait: Annotated[bool, typer.Option("--wait", help="Print how many were removed.")] = False,
    timeout: Timeout = 60.0,
) -> None:
    """Remove what a subscriber has still to import from the publisher agent that is asked.

    Only an editable subscriber does it.
    """
    with context.ensure_object(Connection).publisher() as publisher:
        clear_packages(publisher, name, up_to, ask=not yes, wait_s=timeout if wait else None)


def clear_packages(
    publisher: Client, name: str, up_to: int | None, *, ask: bool, wait_s: float | None
) -> None:
    """Remove the packages that wait for a subscriber up to an offset, and print the command's id.

    With `wait_s`: wait for it and print how many were removed instead. Raises `CommandFailed`.
    """
    tag = None
    if ask:
        answer = publisher.answer(f"/queues/{segment(name)}?limit=1")
        seen, tag = answer.document(), answer.headers.get("etag", "*")
        if seen["editable"] and not _confirmed(publisher, seen, up_to):  # else it is refused
            return
    cleared = publisher.clear(name, up_to=up_to, if_match=tag, wait=wait_s)
    if wait_s is not None:
        output.line(str(cleared["removed"]))
        return
    output.line(cleared["command_id"])
    output.report(f"{name} is asked to remove {_counted(cleared)} of agent {cleared['agent']}")


def _confirmed(publisher: Client, seen: Mapping[str, Any], up_to: int | None) -> bool:
    """Ask whether what was seen is to be removed; return False when nothing waits.

    Raises `CommandFailed` for all but a yes.
    """
    name, agent = seen["subscriber"], seen["agent"]
    covered = _covered(publisher, seen, up_to)
    if covered == Covered(0, exact=True) and seen["head"] is None:
        where = "" if up_to is None else f" up to offset {up_to}"
        output.report(f"nothing of agent {agent} waits for {name}{where}")
        return False
    question = f"Remove {covered} of {name}, all of agent {agent}?"
    output.require_yes(question, "nothing was cleared")
    return True


def _covered(publisher: Client, seen: Mapping[str, Any], up_to: int | None) -> Covered:
    """Return what waits up to an offset; without one, all that was seen."""
    if up_to is None:
        return Covered(seen["at_least"], exact=seen["length"] is not None)
    return _counted(publisher.clear_bound(seen["subscriber"], up_to=up_to))


def _counted(bound: Mapping[str, Any]) -> Covered:
    return Covered(bound["packages"], bound["packages"] == bound["packages_at_most"])
