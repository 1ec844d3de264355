"""`packhorse errors …`: what a subscriber gave up on, sent once more, or off its error queue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from packhorse.client.blocking import Client
from packhorse.runtime.command_options import with_options
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.options import Key, SubscriberName, Timeout, WaitForAll, Yes
from packhorse_services.cli.distribute.command import await_all_distributed

errors = typer.Typer(help="What subscribers gave up on; see `get errors`.", no_args_is_help=True)

Offsets = Annotated[
    list[int] | None,
    typer.Argument(metavar="OFFSET...", min=0, help="The packages' offsets in its error queue."),
]
Reason = Annotated[
    str | None, typer.Option(help="All whose reason contains this, in either case of letters.")
]
Again = Annotated[
    bool, typer.Option("--again", help="Also what was distributed again before; with offsets.")
]


@dataclass(frozen=True, kw_only=True)
class RedistributeOptions:
    """Which packages, and whether the command waits for the new ones."""

    offsets: Offsets = None
    reason: Reason = None
    again: Again = False
    wait: WaitForAll = False
    timeout: Timeout = 60.0
    key: Key = None


@errors.command("redistribute")
@with_options
def redistribute(
    context: typer.Context, *, subscriber: SubscriberName, options: RedistributeOptions
) -> None:
    """Distribute the paths of packages again, to whom they were for, and print the new ids."""
    with context.ensure_object(Connection).publisher() as publisher:
        if options.offsets is not None and len(options.offsets) == 1 and options.reason is None:
            ids = [
                _redistribute_one(
                    publisher, subscriber, options.offsets[0], options.key, again=options.again
                )
            ]
        elif options.key is not None:
            raise CommandFailed("--key goes with one offset only", Exit.USAGE)
        else:
            meant = _meant(options.offsets, options.reason)
            ids = _report_entries(
                publisher.redistribute_all(
                    subscriber, *meant, reason=options.reason, again=options.again
                )
            )
        if options.wait:
            await_all_distributed(publisher, ids, options.timeout)


@errors.command("dismiss")
def dismiss(
    context: typer.Context,
    *,
    subscriber: SubscriberName,
    offsets: Offsets = None,
    reason: Reason = None,
    yes: Yes = False,
) -> None:
    """Take packages off a subscriber's error queue; what became of them stays known."""
    meant = _meant(offsets, reason)
    what = f"what failed with {reason!r}" if reason else f"{len(offsets or [])} of its packages"
    if not yes:
        output.require_yes(f"Dismiss {what} at {subscriber}?", "nothing was dismissed")
    with context.ensure_object(Connection).publisher() as publisher:
        done = publisher.dismiss(subscriber, *meant, reason=reason)
    for offset in done["offsets"]:
        output.line(str(offset))
    output.report(f"{len(done['offsets'])} dismissed, {done['length']} left{_more(done)}")


def _redistribute_one(
    publisher: Client, subscriber: str, offset: int, key: str | None, *, again: bool
) -> str:
    accepted = publisher.redistribute(subscriber, offset, again=again, key=key)
    distribution_id = str(accepted["id"])
    output.line(distribution_id)
    return distribution_id


def _report_entries(done: Mapping[str, Any]) -> list[str]:
    """Print the ids of what goes out. Raises `CommandFailed` when something does not."""
    ids, refused = [], 0
    for entry in done["entries"]:
        if entry["state"] == "REDISTRIBUTED":
            ids.append(str(entry["distribution_id"]))
            output.line(ids[-1])
        elif entry["state"] == "REFUSED":
            refused += 1
            output.complain(f"{entry['offset']}: {entry['reason']}")
        else:
            before = entry["distribution_id"]
            output.report(f"{entry['offset']}: was distributed again before, as {before}")
    output.report(f"{len(ids)} distributed again{_more(done)}")
    if refused:
        raise CommandFailed(f"{refused} of {len(done['entries'])} were refused")
    return ids


def _meant(offsets: list[int] | None, reason: str | None) -> list[int]:
    if not offsets and not reason:
        raise CommandFailed("name offsets, or a part of the reason with --reason", Exit.USAGE)
    return offsets or []


def _more(done: Mapping[str, Any]) -> str:
    return "; there are more, so do it again" if done["more"] else ""
