"""Releases of an author, and attempts to send them that may die anywhere or be too late."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg

from packhorse.blobs.open import open_blobs
from packhorse.db.engine import Timeouts
from packhorse.db.pool import SharedPool
from packhorse.jobs.consumer import Outcome
from packhorse.messaging.open import open_journal
from packhorse_services.publisher.outbox.append_lock import AppendLock
from packhorse_services.publisher.outbox.release_rows import Release
from packhorse_services.publisher.outbox.request import DistributionRequest, Pending
from packhorse_services.publisher.publish.publishing import Publishing
from packhorse_services.publisher.queues.queue import UnknownSubscriber
from packhorse_services.publisher.releases.contents import Moment
from packhorse_services.publisher.releases.planning import Releases, topic_of
from packhorse_services.publisher.releases.sending import ReleaseSender
from tests.harness.publishing import (
    AGENT,
    Author,
    FragileJournal,
    Fuse,
    fragile_lock,
    page,
    publish,
    request,
)


class ReleaseStage:
    """An author, its releases, and the jobs that send them, which the test does one by one."""

    def __init__(self, author: Author, *, lock_ms: int = 120_000) -> None:
        """Wait so long for a row: who has died may hold it until Postgres has noticed."""
        self.author = author
        limits = Timeouts(statement_ms=120_000, lock_ms=lock_ms)
        self._pool = SharedPool(author.database_url, "releases", timeouts=limits)
        self.forgotten: set[str] = set()
        self.releases = Releases(self._pool.share(4), AGENT, self._check_targets)
        self.healthy = author.replica()

    def _check_targets(self, targets: Sequence[str]) -> None:
        if unknown := self.forgotten.intersection(targets):
            raise UnknownSubscriber(f"nobody knows {min(unknown)}")

    def close(self) -> None:
        """Close what is open."""
        self._pool.stop(120)
        self.author.close()

    def plan(self, path: str, moment: Moment = "now", key: str | None = None) -> Release:
        """Plan a release of one path."""
        return self.releases.give(request(path, key=key), moment)[0]

    def jobs(self) -> list[Mapping[str, Any]]:
        """Return what the jobs say that wait."""
        rows = self.author.rows(
            "SELECT properties FROM jobs.job WHERE topic = %s ORDER BY number", topic_of(AGENT)
        )
        return [row[0] for row in rows]

    def send(
        self,
        job: Mapping[str, Any],
        publishing: Publishing | None = None,
        check_known: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Attempt a job; its row stays, as when the attempt's end is lost."""

        def submit(requested: DistributionRequest) -> Pending:
            [pending] = publish(publishing or self.healthy, requested)
            return pending

        sender = ReleaseSender(self.releases, submit, lambda _: None, check_known)
        given: Any = SimpleNamespace(properties=job)
        context: Any = SimpleNamespace(stop_requested=False)
        result = sender(given, context)
        return result if isinstance(result, Outcome) else result.outcome

    def dying(self, fuse: Fuse) -> Publishing:
        """Return a replica that dies after the fuse's steps."""
        return self.author.replica(
            journal=FragileJournal(self.author.journal, fuse),
            lock=fragile_lock(self.author, fuse),
        )

    def meddled(self, steps: int, meddle: Callable[[], None]) -> Publishing:
        """Return a replica during which, after so many steps, something else happens once."""
        left = [steps]

        def connection() -> psycopg.Connection:
            made = self.author.lock_connection()
            wait = made.wait

            def stepwise(*arguments: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] == -1:
                    meddle()
                return wait(*arguments, **options)

            made.wait = stepwise  # type: ignore[method-assign]
            return made

        return self.author.replica(lock=AppendLock(connection))

    def package_of(self, release: Release) -> str:
        """Return the id of the package that a release is, or nothing."""
        return self.releases.find(release.release_id).package_id

    def counted(self) -> Counter[str]:
        """Return how often each package is in the journal, once all is settled."""
        self.healthy.reconcile()
        return Counter(placed.message.entry.package_id for placed in self.author.journaled())


def open_stage(database_url: str, folder: Path, **limits: int) -> ReleaseStage:
    """Return a stage whose author has two pages."""
    journal = open_journal(f"memory://{folder}", client_name="tests")
    author = Author(database_url, journal, open_blobs(str(folder / "blobs")))
    author.write(page("/p0"), page("/p1"))
    return ReleaseStage(author, **limits)
