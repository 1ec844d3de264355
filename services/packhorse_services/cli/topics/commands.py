"""`packhorse topics create|check|grant`."""

from typing import Annotated

import typer

from packhorse.runtime.command_options import with_options
from packhorse.wire.topics import PACKAGE_RETENTION_HOURS, Topics
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed
from packhorse_services.cli.client.settings import JournalOption
from packhorse_services.cli.client.topic_options import TopicOptions
from packhorse_services.cli.topics import keeping, provision

topics = typer.Typer(help="The journal's topics.", no_args_is_help=True)
topics.command("retention")(keeping.retention)
topics.command("discard")(keeping.discard)

KeepPackages = Annotated[
    float,
    typer.Option(
        "--keep-packages-hours",
        envvar="PACKHORSE_KEEP_PACKAGES_HOURS",
        min=1,
        help="How long packages must be kept, at least.",
    ),
]


@topics.command("create")
@with_options
def create(
    context: typer.Context,
    *,
    chosen: TopicOptions,
    journal: JournalOption,
    hours: KeepPackages = PACKAGE_RETENTION_HOURS,
) -> None:
    """Create the topics that are missing; those that exist stay as they are."""
    url, names = _asked(context, journal, chosen)
    _report(provision.create(url, names, hours), names)


@topics.command("check")
@with_options
def check(
    context: typer.Context,
    *,
    chosen: TopicOptions,
    journal: JournalOption,
    hours: KeepPackages = PACKAGE_RETENTION_HOURS,
) -> None:
    """Say what is wrong with the topics, and how to mend it."""
    url, names = _asked(context, journal, chosen)
    _report(provision.check(url, names, hours), names)


@topics.command("grant")
@with_options
def grant(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="A role of the journal's server that exists.")],
    *,
    program: Annotated[provision.Login, typer.Option("--as", help="Whose login it is.")],
    chosen: TopicOptions,
    journal: JournalOption,
) -> None:
    """Let a login of a journal in PostgreSQL do what one program needs, and no more.

    --journal names it with the login that owns its tables. What the role had
    there before is replaced. Kafka's counterpart are the ACLs of
    docs/security.md.
    """
    url, names = _asked(context, journal, chosen)
    provision.grant(url, names, role, program)


def _asked(context: typer.Context, journal: str | None, chosen: TopicOptions) -> tuple[str, Topics]:
    """Return the journal's URL and the topics' names: of the stack, where no option says them."""
    connection = context.ensure_object(Connection)
    stack = {} if journal else connection.directory.author_settings()
    return connection.journal(journal), chosen.topics(stack)


def _report(wrong: list[str], names: Topics) -> None:
    if wrong:
        raise CommandFailed("\n".join(wrong))
    for name in names.by_part().values():
        output.line(name)
