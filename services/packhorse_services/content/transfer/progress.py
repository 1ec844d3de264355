"""How progress is shown: a bar on a terminal, else a line now and then; the result at the end."""

import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from packhorse_services.content.transfer.folder_import import ImportCounts

_LINE_EVERY_S = 5.0
_WORDS = {"skipped": "left out"}
_NAMED = 100


class TransferProgress:
    """Talks on standard error while a transfer runs, and prints its result on standard output."""

    def __init__(self, verb: str, total: int | None = None) -> None:
        self._verb = verb
        self._console = Console(stderr=True)
        self._began = time.monotonic()
        self._last_line = self._began
        self._named: Counter[str] = Counter()
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(verb, total=total)

    @staticmethod
    def on_terminal() -> bool:
        """Whether somebody watches."""
        return sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def report(self, counts: ImportCounts) -> None:
        """Show how far it is."""
        done = counts.files + counts.folders + counts.unchanged + counts.skipped + counts.refused
        text = (
            f"{counts.files} files, {counts.bytes / 1e6:.1f} MB, {self._rate(counts):.0f} files/s"
        )
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, description=text)
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._say(f"{self._verb}: {text}, {counts.unchanged} unchanged")

    def refuse(self, name: str, reason: str) -> None:
        """Say what was refused and why; names are shown escaped, for they may hold anything."""
        self._name("refused", name, reason)

    def skip(self, name: str, reason: str) -> None:
        """Say what was left out and why."""
        self._name("left out", name, reason)

    def _name(self, what: str, name: str, reason: str) -> None:
        self._named[what] += 1
        if self._named[what] <= _NAMED:
            self._say(f"{what}: {name[:300]!a}: {ascii(reason[:300])[1:-1]}")
        elif self._named[what] == _NAMED + 1:
            self._say(f"{what}: and more, which are only counted")

    def conclude(self, counts: ImportCounts, *, as_json: bool) -> None:
        """Print the result."""
        seconds = time.monotonic() - self._began
        if as_json:
            result = {**asdict(counts), "seconds": round(seconds, 3)}
            sys.stdout.write(json.dumps(result) + "\n")
            return
        given = asdict(counts).items()
        reported = [f"{number} {_WORDS.get(name, name)}" for name, number in given if number]
        sys.stdout.write(f"{self._verb}: {', '.join(reported) or 'nothing'} in {seconds:.1f} s\n")

    def _rate(self, counts: ImportCounts) -> float:
        return (counts.files + counts.unchanged) / max(0.001, time.monotonic() - self._began)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
