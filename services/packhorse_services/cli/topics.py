"""`packhorse topics`: create the journal's topics, and check those that somebody else made."""

from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.wire.topics import Topics
from packhorse_services.cli import output
from packhorse_services.cli.api import CommandFailed


def create(journal_url: str, topic_prefix: str) -> None:
    """Create the topics that are missing, then check all of them."""
    with_journal = open_journal(journal_url, client_name="packhorse-cli")
    try:
        with_journal.create_topics(standard_topics(Topics.prefixed(topic_prefix)))
    finally:
        with_journal.close()
    check(journal_url, topic_prefix)


def check(journal_url: str, topic_prefix: str) -> None:
    """Print the topics. Raises `CommandFailed` with a sentence for each thing that is wrong."""
    wanted = standard_topics(Topics.prefixed(topic_prefix))
    journal = open_journal(journal_url, client_name="packhorse-cli")
    try:
        wrong = journal.check_topics(wanted)
    finally:
        journal.close()
    if wrong:
        raise CommandFailed("\n".join(wrong))
    for topic in wanted:
        output.line(topic.name)
