"""A task as a process of its own, which ends on request, and with a worker that is killed."""

import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.job import Job
from packhorse.runtime import leash
from packhorse.runtime.startup import WRONG_CONFIGURATION

_LOOK_S = 0.5
_GRACE_S = 60.0
"""How long a task may take to end, which ends a batch of Spark in order."""
_LONGEST_LINE = 2_000
_REPORTED_LINES, _REPORTED_CHARACTERS = 5, 300


@dataclass(frozen=True, slots=True)
class RunTask:
    """The consumer of one task's jobs; a stop request or a lost job ends the process."""

    command: Sequence[str]
    grace_s: float = _GRACE_S

    def __call__(self, _job: Job, context: JobContext) -> Result:
        """Run it, with what it says in the job's log; wrong settings are not tried again."""
        said: deque[str] = deque(maxlen=_REPORTED_LINES)
        with subprocess.Popen(
            [*leash.on_leash(), *self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            hearing = threading.Thread(target=_hear, args=(process.stdout, context, said))
            hearing.start()
            stopped = self._wait(process, context)
            hearing.join()
        return _result(process.returncode, "\n".join(said), stopped=stopped)

    def _wait(self, process: "subprocess.Popen[bytes]", context: JobContext) -> bool:
        """Return whether it was asked to end before it did."""
        while process.poll() is None:
            if context.wait(_LOOK_S) and process.poll() is None:
                process.terminate()
                try:
                    process.wait(self.grace_s)
                except subprocess.TimeoutExpired:
                    process.kill()
                return True
        return False


def _hear(stream: IO[bytes] | None, context: JobContext, said: deque[str]) -> None:
    """Read to the end, whatever is written: a full pipe would hold the task up."""
    while stream is not None and (line := stream.readline(_LONGEST_LINE)):
        reported = line.decode(errors="replace").rstrip().replace("\0", "")
        if reported:
            said.append(reported[:_REPORTED_CHARACTERS])
            context.log(reported)


def _result(code: int, said: str, *, stopped: bool) -> Result:
    if code == 0:
        return Result(Outcome.OK, said)
    if stopped:
        return Result(Outcome.FAILED, "a stop was requested")
    outcome = Outcome.CANCEL if code == WRONG_CONFIGURATION else Outcome.FAILED
    return Result(outcome, f"exit code {code}: {said}")
