"""Sending a release when its moment has come: the consumer of the jobs that wait for it.

A job may be done again, by another replica too; the release's row lets one of them through.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future

import psycopg

from packhorse.db.connect import AWAY
from packhorse.errors import Transient
from packhorse.jobs.consumer import JobContext, Outcome, Result, Retry
from packhorse.jobs.job import Job
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse_services.publisher.outbox import release_rows
from packhorse_services.publisher.outbox.release_rows import ReleaseChanged
from packhorse_services.publisher.outbox.request import (
    Accepted,
    DistributionRequest,
    Pending,
    ReleaseVersion,
)
from packhorse_services.publisher.releases.contents import request_of
from packhorse_services.publisher.releases.planning import PATTERN, Releases

logger = logging.getLogger(__name__)

QUEUE = QueueConfiguration(
    name="publisher-releases",
    patterns=(PATTERN,),
    type=QueueType.UNORDERED,
    max_parallel=4,
    max_retries=-1,
    max_retry_delay_s=60.0,
    keep_history=False,
)
"""A release that can't go out yet, for the journal or the database is away, is tried for ever."""

_LOOK_S = 1.0


class ReleaseSender:
    """A consumer of jobs: sends one release."""

    def __init__(
        self,
        releases: Releases,
        submit: Callable[[DistributionRequest], Pending],
        admit: Callable[[DistributionRequest], None],
        check_known: Callable[[], None] = lambda: None,
    ) -> None:
        """`admit` raises `QueueFull` when too much waits for a subscriber.

        `check_known` raises a `Transient` until all who announce themselves are known: before, one
        that a release is for would seem to be gone.
        """
        self._releases, self._submit = releases, submit
        self._admit, self._check_known = admit, check_known

    def __call__(self, job: Job, context: JobContext) -> Result | Outcome:
        """Send the release that a job names, if it is still to be sent.

        Raises what may be gone at the next attempt; what will not be ends the release as FAILED.
        """
        which = ReleaseVersion(str(job.properties["release"]), int(job.properties["version"]))
        release = self._releases.due(which.release_id, which.version)
        if release is None:
            return Result(Outcome.OK, "changed, cancelled or sent")
        try:
            accepted = self._send(request_of(release), context)
        except ReleaseChanged:
            return Result(Outcome.OK, "changed or cancelled")
        except (Transient, *AWAY) as error:
            self._note_wait(which, error)
            raise
        except Retry:
            raise
        except Exception as error:
            return self._fail(which, error)
        return Result(Outcome.OK, accepted.package_id)

    def _send(self, request: DistributionRequest, context: JobContext) -> Accepted:
        if request.targets:
            self._check_known()
        self._admit(request)
        future = self._submit(request).future
        while not _is_done(future):
            if context.stop_requested and future.cancel():
                raise Retry("the publisher ends")
        return future.result()

    def _note_wait(self, which: ReleaseVersion, error: Exception) -> None:
        """Say why it is late; the release waits all the same when that can't be said."""
        try:
            with self._releases.writing() as connection:
                release_rows.waits(connection, which, str(error))
        except psycopg.Error:
            logger.warning("why a release waits can't be noted", extra={"error": str(error)})

    def _fail(self, which: ReleaseVersion, error: Exception) -> Result:
        extra = {"release": which.release_id, "error": str(error)}
        logger.warning("a release can't be sent", extra=extra)
        with self._releases.writing() as connection:
            release_rows.failed(connection, which, str(error) or type(error).__name__)
        return Result(Outcome.CANCEL, str(error)[: release_rows.MAX_REASON])


def _is_done(future: Future[Accepted]) -> bool:
    try:
        future.exception(_LOOK_S)
    except TimeoutError:
        return False
    return True
