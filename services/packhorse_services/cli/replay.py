"""`packhorse distribute --from-file`: a file of requests, each published once.

The line's number is the producer's sequence, so the publisher knows how far the file has come:
a replay that was killed goes on behind the last line that was committed, and sends none twice.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import stamina

from packhorse_services.cli import output, replay_file
from packhorse_services.cli.api import AWAY, Api, CommandFailed, Exit, NoAnswer, Refused, segment
from packhorse_services.cli.replay_file import BadLine, Line
from packhorse_services.cli.replay_news import News, Tally

USAGE = "--from-file FILE and --producer NAME go together, and without paths, --key and --wait"
PATIENCE_S = 300.0
"""How long one line is tried again before the replay gives up; another replay goes on there."""

_WAIT_MAX_S = 10.0
_AGAIN = {429, *AWAY}
_LINE_AT_FAULT = {400, 403, 404, 413, 415, 422}


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be replayed, and what holds for lines that do not say it themselves."""

    source: str
    """A path, or `-` for stdin."""
    producer: str
    action: str
    deep: bool
    keep_going: bool = False


def replay(publisher: Api, request: Request) -> None:
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
    def __init__(self, publisher: Api, request: Request) -> None:
        self._publisher, self._request = publisher, request
        self._epoch, self._last = 0, -1
        self._tally = Tally()

    def run(self) -> Tally:
        began = time.monotonic()
        with _opened(self._request.source) as file:
            total = replay_file.count(file) if file.seekable() else None
            self._news = News(self._request.producer, total)
            try:
                self._register()
                for line in replay_file.lines(file):
                    self._take(line)
                    self._news.line(self._tally)
            finally:
                self._news.end(self._tally.sentence(time.monotonic() - began))
        return self._tally

    def _register(self) -> None:
        """Register, which fences an earlier replay, and learn how far that one has come."""
        path = f"/producers/{segment(self._request.producer)}"
        registered = _patiently(lambda: self._publisher.put(path), AWAY, self._news)
        self._epoch = registered["epoch"]
        last = registered["last_sequence"]
        self._last = -1 if last is None else int(last)

    def _take(self, line: Line) -> None:
        if line.sequence <= self._last:
            self._tally.behind += 1
            self._tally.last_before = line.sequence
            return
        try:
            self._send(line)
        except BadLine as error:
            self._refuse(line, str(error), Exit.FAILED)
        except Refused as error:
            if error.status not in _LINE_AT_FAULT or error.kind == "bad-producer-name":
                raise
            self._refuse(line, str(error), _code_of_line(error))
        else:
            self._tally.last = line.sequence

    def _send(self, line: Line) -> None:
        body = line.body(self._request.action, deep=self._request.deep)
        body["producer"] = {
            "name": self._request.producer,
            "epoch": self._epoch,
            "sequence": line.sequence,
        }
        try:
            answer = _patiently(
                lambda: self._publisher.post("/distribute", body), _AGAIN, self._news
            )
        except Refused as error:
            if error.kind != "sequence-passed":
                raise
            self._tally.repeated += 1
            return
        if answer["repeated"]:
            self._tally.repeated += 1
        else:
            self._tally.published += 1

    def _refuse(self, line: Line, why: str, code: Exit) -> None:
        place = "stdin" if self._request.source == "-" else self._request.source
        text = f"{place}:{line.sequence}: {why}"
        if not self._request.keep_going:
            raise CommandFailed(text, code)
        output.tell(text)
        self._tally.refused += 1


def _code_of_line(error: Refused) -> Exit:
    """Return the exit code for a line that is wrong, which the command itself is not."""
    return Exit.FAILED if error.code is Exit.USAGE else error.code


def _patiently(send: Callable[[], Any], again_on: Collection[int], news: News) -> Any:
    """Send again what may not have arrived, and what is answered with one of these statuses."""

    def again(error: Exception) -> bool | float:
        if isinstance(error, NoAnswer):
            news.waits(error)
            return True
        if not isinstance(error, Refused):
            return False
        if error.status not in again_on and error.kind != "key-in-progress":
            return False
        news.waits(error)
        return True if error.retry_after_s is None else error.retry_after_s

    for attempt in stamina.retry_context(
        on=again, attempts=None, timeout=PATIENCE_S, wait_initial=0.1, wait_max=_WAIT_MAX_S
    ):
        with attempt:
            return send()
    raise AssertionError("a retry ends with an answer or an error")


@contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(source).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise CommandFailed(f"{source} can't be read: {error.strerror}", Exit.USAGE) from error
    with file:
        yield file
