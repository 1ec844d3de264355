"""`packhorse compare`: what differs at a subscriber, and with `--mend` its distribution to it."""

import itertools
import uuid
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from packhorse.client.blocking import Client
from packhorse.client.errors import NoAnswer
from packhorse.client.exchange import Document, ServiceName
from packhorse.runtime.command_options import with_options
from packhorse_services.cli.client import completion, output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit, exit_code, words
from packhorse_services.cli.client.options import Timeout
from packhorse_services.cli.distribute.command import await_all_distributed

_AUTHOR = "the author"
_PAGE = 10_000
_PLACES = "Where they are"

Top = Annotated[str, typer.Argument(help="A node, with all that is below it.")]
Named = Annotated[
    str,
    typer.Option(help="The one that is compared.", autocompletion=completion.subscribers),
]
With = Annotated[
    str | None,
    typer.Option("--with", help="With this subscriber; else with the author."),
]
Mend = Annotated[
    bool, typer.Option("--mend", help="Distribute what differs again, to this subscriber alone.")
]
ContentUrl = Annotated[
    str | None,
    typer.Option(
        envvar="PACKHORSE_CONTENT_SERVER",
        help="URL of the author's content service; else the stack's.",
        rich_help_panel=_PLACES,
    ),
]
SubscriberUrl = Annotated[
    str | None,
    typer.Option(
        envvar="PACKHORSE_SUBSCRIBER_SERVER",
        help="URL of the subscriber; else the stack's.",
        rich_help_panel=_PLACES,
    ),
]

OtherUrl = Annotated[
    str | None,
    typer.Option(
        help="URL of the subscriber of --with; else the stack's.", rich_help_panel=_PLACES
    ),
]


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Who is compared with whom, where they are, and what is done about it."""

    subscriber: Named
    other: With = None
    mend: Mend = False
    timeout: Timeout = 60.0
    content: ContentUrl = None
    subscriber_url: SubscriberUrl = None
    other_url: OtherUrl = None


@with_options
def compare(context: typer.Context, *, path: Top, options: CompareOptions) -> None:
    """Print what differs at and below a path: missing, extra or different at the subscriber.

    Waits for the first 1,000 packages that are in the subscriber's queue. Ends
    with 0 when nothing differs or all is mended, with 1 when something does,
    with 124 when packages are still under way or what differs has changed
    meanwhile.
    """
    if options.mend and options.other is not None:
        raise CommandFailed("--mend distributes what the author has: leave out --with", Exit.USAGE)
    with _client(context.ensure_object(Connection), options) as client:
        found = _Found()
        _compare(client, path, options, found)
        if not found.nodes and not found.differences:
            said = f"there is nothing at the author's path {path} that {options.subscriber} takes"
            raise CommandFailed(said, Exit.NOT_FOUND)
        found.report(options.other or _AUTHOR, options.subscriber)
        if options.mend:
            _await_mended(client, options, found)
        elif found.differences:
            raise typer.Exit(Exit.FAILED)
        if found.under_way or found.changed:
            raise typer.Exit(Exit.TIMEOUT)


def _await_mended(client: Client, options: CompareOptions, found: "_Found") -> None:
    await_all_distributed(client, found.mended, options.timeout)
    for path in found.changed:
        output.report(f"{path} has changed at {_AUTHOR} meanwhile, and was left out")
    if found.mended:
        what = "the others" if found.changed else f"{found.differences} nodes"
        output.report(f"{what} were distributed to {options.subscriber}")


class _Found:
    """What the pages of a comparison came to."""

    def __init__(self) -> None:
        self.nodes = self.differences = self.under_way = 0
        self.packages: int | None = 0
        self.state = ""
        self.mended: list[str] = []
        self.changed: list[str] = []

    def add(self, page: Document) -> None:
        """Count a page, and print what differs."""
        self.nodes += page["nodes"]
        self.differences += len(page["differences"])
        self.under_way += page["under_way"]
        self.packages, self.state = page["packages"], page["state"]
        for one in page["differences"]:
            there = f" (at {one['own_path']})" if "own_path" in one else ""
            output.line(f"{one['kind']:<9} {one['path']}{there}")

    def report(self, other: str, subscriber: str) -> None:
        """Say what there was."""
        output.report(
            f"{self.nodes} nodes of {other} compared, {self.differences} differ at {subscriber}"
        )
        if self.under_way:
            packages = "packages" if self.packages is None else f"{self.packages} packages"
            output.report(
                f"{self.under_way} more may differ: {packages} under way to {subscriber}, which is "
                f"{self.state}, or changing at {other}"
            )


def _compare(client: Client, path: str, options: CompareOptions, found: _Found) -> None:
    place, wait, key = None, options.timeout, uuid.uuid4().hex
    for number in itertools.count():
        names = (options.subscriber, options.other)
        page = client.compare(path, names[0], other=names[1], after=place, limit=_PAGE, wait=wait)
        found.add(page)
        if options.mend:
            mended = _mended(client, options.subscriber, page["differences"], f"{key}-{number}")
            found.mended += mended["ids"]
            found.changed += mended["changed"]
        place, wait = page["next"], 0.0
        if place is None:
            return


def _mended(client: Client, subscriber: str, differences: Any, key: str) -> Document:
    try:
        return client.mend(subscriber, differences, key=key)
    except NoAnswer as error:  # it has the key of a request, which the command does not take
        text = f"{str(error).splitlines()[0]}\nRepeat the command: it mends what differs still."
        raise CommandFailed(text, exit_code(error)) from error


def _client(connection: Connection, options: CompareOptions) -> Client:
    """Return a client of all three."""
    author = options.other_url if options.other else options.content
    urls: dict[ServiceName, str | None] = {
        "content": author,
        "subscriber": options.subscriber_url,
    }
    named: dict[ServiceName, str] = {
        "content": "--other-url" if options.other else "--content",
        "subscriber": "--subscriber-url",
    }
    return Client.of(connection.addresses(urls, named), words=words())
