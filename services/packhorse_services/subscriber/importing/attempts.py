"""Tries of the package in front of a subscription.

Counted in a row that is committed before each (R10).

ADR 0005 says why the row survives what it must survive, and which commits need not wait for disk.
"""

from dataclasses import dataclass, replace

from psycopg import Connection

from packhorse.clock import Clock
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import excused_tries, reason

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a package is tried again, and after how long."""

    max_retries: int = UNLIMITED
    first_delay_s: float = 5.0
    longest_delay_s: float = 900.0
    longest_outage_delay_s: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after that many failures in a row."""
        return min(self.longest_delay_s, self.first_delay_s * 2.0 ** min(failures - 1, 30))

    def outage_delay(self, failures: int) -> float:
        """Return the seconds to wait when the surroundings have failed that often in a row."""
        return min(self.longest_outage_delay_s, self.delay(failures))

    def exhausted(self, attempts: int) -> bool:
        """Return whether a package with so many attempts is given up."""
        return self.max_retries != UNLIMITED and attempts > self.max_retries


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of the tries of one package."""

    mark: Mark
    attempts: int = 0
    last_error: str = ""
    blocked_since_ms: int = 0


class Attempts:
    """A subscription's tries.

    Lives as long as the process, and goes on from the row after a restart.

    A group's failure is nobody's attempt: its packages are then tried alone up to its last one,
    also after a restart, which finds the group's intent in the row. The first package after a
    start is tried alone in any case, so that every start gets further than the last one.
    """

    def __init__(self, agent: str, policy: RetryPolicy, clock: Clock) -> None:
        self._agent, self._policy, self._clock = agent, policy, clock
        self._head: Head | None = None
        self._alone_until: int | None = None
        self._epoch: int | None = None
        self._excused = 0
        self._not_before = clock.monotonic()
        self._last_command: str | None = None
        self._waited = (0, 0)
        """Attempts and excused tries that the back-off no longer counts."""

    def resume(self, connection: Connection, position: Mark, epoch: int) -> None:
        """Take up what the row says; while the lease was not lost this process knows better."""
        if epoch != self._epoch:
            self._epoch, self._alone_until = epoch, None
            self.passed()
        row = connection.execute(
            """
            SELECT log_offset, package_id, attempts, last_error, blocked_since_ms, alone_until
            FROM bookkeeping.attempt WHERE publisher_agent = %s
            """,
            (self._agent,),
        ).fetchone()
        if self._head is not None and self._head.mark.offset <= position.offset:
            self.passed()
        if row is None or self._head is not None:
            return
        *head, alone_until = row
        if alone_until > position.offset:
            self._alone_until = alone_until
        if head[0] > position.offset and head[2] > 0:
            self._head = Head(Mark(head[0], head[1]), *head[2:])
            self._put_off(self._policy.first_delay_s)

    def head(self, mark: Mark) -> Head:
        """Return what is known of the package at `mark`, which is now in front."""
        if self._head is None or self._head.mark != mark:
            self._head, self._excused, self._waited = Head(mark), 0, (0, 0)
        return self._head

    def retry_after(self, mark: Mark, command_id: str) -> None:
        """Let the package in front be tried at once, with the back-off anew, after a command.

        `command_id` is the last one that was given to the subscription; what it was before the
        first call changes nothing. What was counted stays counted.
        """
        if self._last_command not in (None, command_id):
            self._waited = self.head(mark).attempts, self._excused
            self._not_before = self._clock.monotonic()
        self._last_command = command_id

    def wait_s(self, mark: Mark) -> float:
        """Return the seconds until the package in front may be tried, 0 when it may be now."""
        if self.head(mark).last_error == "":
            return 0.0
        return max(0.0, self._not_before - self._clock.monotonic())

    def exhausted(self, mark: Mark) -> bool:
        """Return whether the package in front has had all its attempts."""
        return self._policy.exhausted(self.head(mark).attempts)

    def alone(self, mark: Mark) -> bool:
        """Return whether the package in front has to be tried by itself."""
        if self._alone_until is None:
            self._alone_until = mark.offset
        return mark.offset <= self._alone_until or self.head(mark).attempts > 0

    def begin_group(self, connection: Connection, first: Mark, last: Mark) -> None:
        """Commit the intent to try a group; it need not reach the disk to survive this process."""
        self._store(connection, Head(first), last.offset, durable=False)

    def begin_alone(self, connection: Connection, mark: Mark) -> Head:
        """Count an attempt and commit it to disk, with what is true if it never ends."""
        head = self.head(mark)
        attempt = replace(head, attempts=head.attempts + 1)
        interrupted = replace(
            attempt,
            last_error=f"attempt {attempt.attempts} ended with the worker that made it",
            blocked_since_ms=head.blocked_since_ms or self._clock.wall_ms(),
        )
        self._store(connection, interrupted, mark.offset, durable=True)
        self._head = attempt
        return attempt

    def group_failed(self, last: Mark) -> None:
        """Try alone up to `last` from now on."""
        self._alone_until = last.offset

    def failed(self, mark: Mark, error: BaseException, *, counted: bool) -> bool:
        """Note a failure, and return whether it was the package's own.

        `counted` says that `begin_alone` has counted this try. Failures of the surroundings are
        given back, as often in a row as `excused_tries` allows.
        """
        head = self.head(mark)
        self._excused += 1
        own = self._excused > excused_tries(error)
        self._head = replace(
            head,
            attempts=head.attempts + int(own) - int(counted),
            last_error=reason(error),
            blocked_since_ms=head.blocked_since_ms or self._clock.wall_ms(),
        )
        policy = self._policy
        if own:
            self._excused, self._waited = 0, (self._waited[0], 0)
            self._put_off(policy.delay(self._head.attempts - self._waited[0]))
        else:
            self._put_off(policy.outage_delay(self._excused - self._waited[1]))
        return own

    def save(self, connection: Connection) -> None:
        """Commit what is known of the package in front."""
        if self._head is not None:
            self._store(connection, self._head, self._head.mark.offset, durable=True)

    def passed(self) -> None:
        """Forget the package in front.

        The subscription has moved past it, the next begins at zero.
        """
        self._head, self._excused, self._waited = None, 0, (0, 0)

    def _put_off(self, seconds: float) -> None:
        self._not_before = self._clock.monotonic() + seconds

    def _store(
        self, connection: Connection, head: Head, last_offset: int, *, durable: bool
    ) -> None:
        with connection.transaction(), connection.pipeline():
            if not durable:
                connection.execute("SET LOCAL synchronous_commit = off")
            connection.execute(
                """
                INSERT INTO bookkeeping.attempt (
                    publisher_agent, log_offset, package_id, attempts, last_error,
                    blocked_since_ms, alone_until)
                VALUES (%s, %s, %s, %s, %s, %s, %s)
                ON CONFLICT (publisher_agent) DO UPDATE SET
                    log_offset = excluded.log_offset, package_id = excluded.package_id,
                    attempts = excluded.attempts, last_error = excluded.last_error,
                    blocked_since_ms = excluded.blocked_since_ms,
                    alone_until = excluded.alone_until
                """,
                (
                    self._agent,
                    head.mark.offset,
                    head.mark.package_id,
                    head.attempts,
                    head.last_error,
                    head.blocked_since_ms,
                    max(last_offset, self._alone_until or -1),
                ),
            )
