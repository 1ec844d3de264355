"""`packhorse distribute --from-file`: a file of requests, each published once.

The line's number is the producer's sequence, so the publisher knows how far the file has come:
a replay that was killed goes on behind the last line that was committed, and sends none twice.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhorse.client.blocking import Client
from packhorse.client.calls.producing import NOTHING_SENT, is_transient
from packhorse.client.errors import ClientError, Refused
from packhorse.client.patience import Patience
from packhorse_services.cli.client import output
from packhorse_services.cli.client.failures import CommandFailed, Exit, exit_code
from packhorse_services.cli.distribute import replay_file
from packhorse_services.cli.distribute.replay_file import BadLine, ReplayLine
from packhorse_services.cli.distribute.replay_news import News, Tally

USAGE = (
    "--from-file FILE and --producer NAME go together, and without paths, "
    "--at, --dry-run, --key, --to and --wait"
)
PATIENCE_S = 300.0
"""How long a line is tried again before the replay gives up; another replay goes on there."""

BATCH = 200
MAX_BATCH = 500
"""How many lines one request carries, unless the user says otherwise, and at most."""

_LINE_AT_FAULT = {400, 403, 404, 413, 415, 422}
_AMOUNT_AT_FAULT = {400, 413, 422}

Sent = tuple[ReplayLine, Mapping[str, Any]]
"""A line, and the request that it is."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What is to be replayed, and what holds for lines that do not say it themselves."""

    source: str
    """A path, or `-` for stdin."""
    producer: str
    action: str
    deep: bool
    keep_going: bool = False
    batch: int = BATCH


def replay(publisher: Client, request: ReplayRequest) -> None:
    """Send the lines behind the last one that was committed, in order.

    Raises `CommandFailed`: with the file and the line for one that is refused, or, when it is to
    keep going, with how many were, at the end; with `CONFLICT` when another replay has registered
    the producer since; with what was wrong last when the publisher stays away. Sending the file
    again goes on where it was.
    """
    tally = _Replay(publisher, request).run()
    if tally.refused:
        lines = "1 line was" if tally.refused == 1 else f"{tally.refused} lines were"
        raise CommandFailed(f"{lines} refused; a replay of this producer does not send them again")


class _Replay:
    def __init__(self, publisher: Client, request: ReplayRequest) -> None:
        self._request = request
        self._refused = NOTHING_SENT
        self._tally = Tally()
        patience = Patience(PATIENCE_S, waiting=self._waits)
        self._producer = publisher.producer(request.producer, patience=patience)

    def run(self) -> Tally:
        began = time.monotonic()
        with replay_file.opened(self._request.source) as file:
            total = replay_file.count(file) if file.seekable() else None
            self._news = News(self._request.producer, total)
            try:
                self._last = self._producer.register()  # which fences an earlier replay
                for batch in replay_file.batches(file, self._request.batch):
                    self._take(batch)
            finally:
                self._news.end(self._tally.sentence(time.monotonic() - began))
        return self._tally

    def _waits(self, error: ClientError) -> None:
        self._news.waits(error)

    def _take(self, batch: Sequence[ReplayLine]) -> None:
        waiting: list[Sent] = []
        for line in batch:
            if line.sequence <= self._last:
                self._tally.behind += 1
                self._tally.last_before = line.sequence
                self._news.line(self._tally)
                continue
            try:
                waiting.append((line, self._body(line)))
            except BadLine as error:
                self._send_all(waiting)
                waiting = []
                self._refuse(line, str(error), Exit.FAILED)
        self._send_all(waiting)
        self._pass_over()

    def _body(self, line: ReplayLine) -> Mapping[str, Any]:
        return line.body(self._request.action, deep=self._request.deep)

    def _send_all(self, waiting: Sequence[Sent]) -> None:
        """Send lines until each is dealt with; of too many for one request, the halves."""
        while waiting:
            try:
                done = self._send(waiting)
            except Refused as error:
                if error.status not in _AMOUNT_AT_FAULT:
                    raise
                done = len(waiting) // 2
                if done:
                    self._send_all(waiting[:done])
                else:
                    self._end(waiting[0][0], error)
                    done = 1
            waiting = waiting[done:]

    def _send(self, waiting: Sequence[Sent]) -> int:
        """Send lines in one request; return how many of them, the first ones, are dealt with."""
        bodies = {line.sequence: body for line, body in waiting}
        outcomes = self._producer.send_batch(bodies)
        for done, ((line, _), outcome) in enumerate(zip(waiting, outcomes, strict=True)):
            error = outcome if isinstance(outcome, Refused) else None
            if done and error is not None and is_transient(error):
                return done
            repeated = not isinstance(outcome, Refused) and bool(outcome["repeated"])
            self._end(line, error, repeated=repeated)
        return len(waiting)

    def _end(self, line: ReplayLine, error: Refused | None, *, repeated: bool = False) -> None:
        """Count what became of a line. Raises what concerns more than the line."""
        if repeated or (error is not None and error.kind == "sequence-passed"):
            self._tally.repeated += 1
        elif error is None:
            self._tally.published += 1
        elif error.status not in _LINE_AT_FAULT or error.kind == "bad-producer-name":
            raise error
        else:
            self._refuse(line, str(error), _code_of_line(error))
            return
        self._tally.last = line.sequence
        self._news.line(self._tally)

    def _refuse(self, line: ReplayLine, why: str, code: Exit) -> None:
        place = "stdin" if self._request.source == "-" else self._request.source
        text = f"{place}:{line.sequence}: {why}"
        if not self._request.keep_going:
            raise CommandFailed(text, code)
        output.report(text)
        self._tally.refused += 1
        self._refused = line.sequence
        self._news.line(self._tally)

    def _pass_over(self) -> None:
        """Let the producer's number move past refused lines that no later one has moved it past."""
        if self._refused <= max(self._last, self._tally.last or -1):
            return
        self._producer.pass_over(self._refused)
        self._last = self._refused


def _code_of_line(error: Refused) -> Exit:
    """Return the exit code for a line that is wrong, which the command itself is not."""
    code = exit_code(error)
    return Exit.FAILED if code is Exit.USAGE else code
