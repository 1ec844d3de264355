"""The journal and the blob store of `packhorse up`, tried before anything runs."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from packhorse.blobs.open import open_blobs
from packhorse.errors import PackhorseError, Permanent, Transient
from packhorse_services.cli import topics
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.stack.layout import StackOptions, has_own_journal


class TopicsUnfit(Permanent):
    """Topics that somebody else made are not what packhorse needs; the text says what to change."""


def check_named(options: StackOptions) -> None:
    """Raise `CommandFailed` with `Exit.USAGE` for a journal or blobs that no program could open.

    Connects to nothing; a folder for blobs is made.
    """
    if not has_own_journal(options):
        with topics.opened(options.journal):
            pass
    if options.blobs:
        try:
            open_blobs(options.blobs).close()
        except PackhorseError as error:
            raise CommandFailed(f"--blobs: {error}", Exit.USAGE) from error


def check_answering(options: StackOptions) -> None:
    """Return once named blobs take and give what is put there, and a named journal has its topics.

    Raises `CommandFailed` for one that does not answer, and what `check_topics` raises.
    """
    if options.blobs:
        with _option_at_fault("--blobs"), closing(open_blobs(options.blobs)) as blobs:
            blobs.check()
    if not has_own_journal(options):
        with _option_at_fault("--journal"):
            check_topics(options.journal, options.topic_prefix)


def check_topics(journal: str, topic_prefix: str) -> None:
    """Create the topics that are missing. Raises `TopicsUnfit` for one that can't be used."""
    if wrong := topics.create(journal, topic_prefix):
        raise TopicsUnfit("\n".join(wrong))


@contextmanager
def _option_at_fault(option: str) -> Iterator[None]:
    try:
        yield
    except Transient as error:
        raise CommandFailed(f"{option}: {error}") from error
