"""Events between three real processes: one is killed, one is paused, all sessions are cut."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.harness.borrowing import borrowed
from tests.harness.imported import Imported, begin_module
from tests.harness.postgres import Databases, end_sessions
from tests.harness.waiting import eventually

_ROOT = Path(__file__).parents[3]


class Subject:
    """One instance, over all its lives."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.name, self._file = name, folder / f"{name}.txt"
        self._command = ["tests.integration.jobs.event_subject", url, name, str(self._file)]
        self._file.touch()
        self._process: Imported | None = None
        self._names = -1

    def start(self) -> None:
        lives = len(self.said("ready"))
        names, self._names = os.pipe()
        self._process = begin_module(self._command, os.environ, _ROOT, [names, 1, 2])
        os.close(names)
        eventually(lambda: len(self.said("ready")) > lives, timeout=180, what=f"{self.name} ready")

    def emit(self, *names: str) -> None:
        os.write(self._names, "".join(f"{name}\n" for name in names).encode())

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.end()

    def end(self) -> int:
        assert self._process is not None
        names, self._names = self._names, -1
        if names >= 0:  # a second call waits once more
            os.close(names)
        return self._process.wait(120)

    def until_heard(self, *names: str) -> None:
        eventually(lambda: {*names} <= {*self.said("heard")}, timeout=180, what=f"{names}")

    def said(self, word: str) -> list[str]:
        lines = [line.partition(" ") for line in self._file.read_text().splitlines()]
        return [name for first, _, name in lines if first == word]


@contextmanager
def _ending(subject: Subject) -> Iterator[Subject]:
    try:
        yield subject
    finally:
        if subject._process is not None and subject._process.poll() is None:
            subject.kill()


def test_three_processes_hear_each_other_through_a_kill_a_pause_and_cuts(
    databases: Databases, tmp_path: Path
) -> None:
    url = databases.new("events")
    with ExitStack() as stack:
        a, b, c = (stack.enter_context(_ending(Subject(url, n, tmp_path))) for n in ("a", "b", "c"))
        for subject in (a, b, c):
            subject.start()
        a.emit(*(f"a{n}" for n in range(100)))
        c.emit(*(f"c{n}" for n in range(100)))
        eventually(lambda: len(b.said("heard")) > 20)
        b.kill()
        c.signal(signal.SIGSTOP)
        a.emit(*(f"a{n}" for n in range(100, 300)))
        eventually(lambda: len(a.said("sent")) == 300, timeout=180)
        with borrowed(url) as connection:
            end_sessions(connection)
        c.signal(signal.SIGCONT)
        b.start()
        b.emit(*(f"b{n}" for n in range(50)))
        c.emit("c-last")
        a.emit("a-last")
        a.until_heard("c-last", "b49")
        b.until_heard("a-last", "c-last")
        c.until_heard("a-last", "b49")
        assert [subject.end() for subject in (a, b, c)] == [0, 0, 0]
    _check(a, b, c)


def _check(a: Subject, b: Subject, c: Subject) -> None:
    """Each of `a` and `c` heard each event of the others once; `b`, which was killed, all."""
    from_a = [*(f"a{n}" for n in range(300)), "a-last"]
    from_b = [f"b{n}" for n in range(50)]
    from_c = [*(f"c{n}" for n in range(100)), "c-last"]
    assert Counter(a.said("heard")) == Counter(from_b + from_c)
    assert Counter(c.said("heard")) == Counter(from_a + from_b)
    assert a.said("local") == from_a
    heard_by_b = Counter(b.said("heard"))
    assert set(heard_by_b) == {*from_a, *from_c}, "the one that was killed has missed nothing"
    assert max(heard_by_b.values()) <= 2, "only the page that it was at when it died comes again"
    assert a.said("unsure") + b.said("unsure") + c.said("unsure") == []
