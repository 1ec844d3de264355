"""A publisher whose process ends between two steps of a publication."""

from packhorse.messaging.api import Journal
from packhorse_services.publisher.outbox.request import DistributionRequest
from packhorse_services.publisher.publish.early_export import EarlyPublishing
from packhorse_services.publisher.publish.publishing import Publishing
from tests.harness.publishing import (
    Author,
    Crash,
    FragileJournal,
    Fuse,
    fragile_connection,
    fragile_lock,
    publish,
)


def crash_once(
    author: Author,
    steps: int,
    *requests: DistributionRequest,
    early: bool = False,
    journal: Journal | None = None,
) -> bool:
    """Publish with a process that dies after `steps`; return whether it died.

    `early`: it exports before it takes the lock.
    """
    fuse = Fuse(steps)
    replica = author.replica(
        journal=FragileJournal(journal or author.journal, fuse), lock=fragile_lock(author, fuse)
    )
    dying: Publishing | EarlyPublishing = replica
    if early:
        dying = author.early(
            publishing=replica,
            open_connection=lambda: fragile_connection(author.early_connection(), fuse),
        )
    try:
        publish(dying, *requests)
    except Crash:
        pass
    finally:
        dying.close()
    return fuse.blown
