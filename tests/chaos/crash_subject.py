"""One subscriber that imports what the journal holds and ends; the crash points kill it.

Run as `python -m tests.chaos.crash_subject DATABASE JOURNAL BLOBS CLEAR_UP_TO [broken]`. `broken`
commits the content before the offset, which the crash points must find out.
"""

import sys

from psycopg import Connection

from packhorse.blobs.open import open_blobs
from packhorse.db.metadata import BOOKKEEPER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.messaging.open import open_journal
from packhorse.packages.apply import apply
from packhorse.packages.path_filter import PathFilter
from packhorse_services.subscriber.announce.statuses import record_statuses
from packhorse_services.subscriber.commands.clear_commands import PendingClear
from packhorse_services.subscriber.importing import importer
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.importer import Import, Importer
from packhorse_services.subscriber.journal import position as positions
from packhorse_services.subscriber.journal.position import Position
from tests.harness.subscriber import Worker

COMMAND = "clear-in-crash"
FILTER = PathFilter(
    (),
    ("/content/private", "/content/deep/private"),
    (("/content/deep", "/content/private/deep"), ("/content/deep/b", "/content/deep")),
    ("text",),
)


def commit_in_two(
    self: Importer, connection: Connection, position: Position, work: Import
) -> Position:
    """What an importer must not do: content in one transaction, the offset in the next."""
    with connection.transaction():
        act_as(connection, IMPORTER)
        apply(connection, work.packages, self.blobs)
    with connection.transaction():
        act_as(connection, BOOKKEEPER)
        moved = positions.move(connection, position, work.mark)
        work.high_water.store(connection, position.agent)
        record_statuses(connection, self.subscriber, position, work.decisions)
    return moved


def main(database: str, journal_url: str, blobs_url: str, clear_up_to: str, *how: str) -> None:
    """Import everything, send the statuses, end."""
    if how == ("broken",):
        importer.Importer.commit = commit_in_two  # type: ignore[method-assign]
    journal, blobs = open_journal(journal_url, client_name="crash"), open_blobs(blobs_url)
    worker = Worker(
        *(database, journal, blobs), policy=RetryPolicy(1, 0.0, 0.0), path_filter=FILTER
    )
    session = worker.begin()
    pending = PendingClear(int(clear_up_to), COMMAND)
    worker.clears.take([(worker.agent, session.position.journal_id, pending)])
    worker.run(deadline_s=600)
    worker.send_statuses()
    worker.die()
    journal.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
