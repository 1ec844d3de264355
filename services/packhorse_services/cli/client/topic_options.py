"""The options that say what the topics are called."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.models import OptionInfo

from packhorse.wire.topics import Topics
from packhorse_services.cli.client.failures import CommandFailed, Exit

_PREFIX = "aemdistribution"
_PANEL = "What the topics are called"


def _name_of(part: str) -> OptionInfo:
    found: OptionInfo = typer.Option(
        f"--topic-{part}",
        envvar=f"PACKHORSE_TOPIC_{part.upper()}",
        show_default=f"the prefix and _{part}",
        help=f"The name of the {part} topic.",
        rich_help_panel=_PANEL,
    )
    return found


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """The prefix of the topics' names, and the names of those that have one of their own."""

    topic_prefix: Annotated[
        str | None,
        typer.Option(
            "--topic-prefix",
            envvar="PACKHORSE_TOPIC_PREFIX",
            show_default=_PREFIX,
            help="What the topics' names begin with.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    topic_package: Annotated[str | None, _name_of("package")] = None
    topic_status: Annotated[str | None, _name_of("status")] = None
    topic_discovery: Annotated[str | None, _name_of("discovery")] = None
    topic_command: Annotated[str | None, _name_of("command")] = None
    topic_event: Annotated[str | None, _name_of("event")] = None

    def topics(self, settings: Mapping[str, str] | None = None) -> Topics:
        """Return the names; without a prefix, what no option says is taken from a stack's settings.

        Raises `CommandFailed` with `Exit.USAGE` where two topics would have one name.
        """
        stack = {} if self.topic_prefix else settings or {}

        def chosen(part: str) -> str:
            return getattr(self, f"topic_{part}") or stack.get(
                f"PACKHORSE_TOPIC_{part.upper()}", ""
            )

        names = {part: chosen(part) for part in Topics().by_part()}
        try:
            return Topics.named(chosen("prefix") or _PREFIX, names)
        except ValueError as error:
            raise CommandFailed(str(error), Exit.USAGE) from error
