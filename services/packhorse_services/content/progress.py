"""How a transfer is told: a bar on a terminal, else a line now and then; the result at the end."""

import json
import sys
import time
from dataclasses import asdict
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from packhorse_services.content.folder_import import Counts

_LINE_EVERY_S = 5.0
_REFUSALS_SHOWN = 100


class Telling:
    """Talks on standard error while a transfer runs, and prints its result on standard output."""

    def __init__(self, verb: str, total: int | None = None) -> None:
        self._verb = verb
        self._console = Console(stderr=True)
        self._began = time.monotonic()
        self._last_line = self._began
        self._refusals = 0
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

    def report(self, counts: Counts) -> None:
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
        self._refusals += 1
        if self._refusals <= _REFUSALS_SHOWN:
            self._say(f"refused: {name[:300]!a}: {ascii(reason[:300])[1:-1]}")
        elif self._refusals == _REFUSALS_SHOWN + 1:
            self._say("refused: and more, which are only counted")

    def conclude(self, counts: Counts, *, as_json: bool) -> None:
        """Print the result."""
        seconds = time.monotonic() - self._began
        if as_json:
            result = {**asdict(counts), "seconds": round(seconds, 3)}
            sys.stdout.write(json.dumps(result) + "\n")
            return
        told = [f"{number} {name}" for name, number in asdict(counts).items() if number]
        sys.stdout.write(f"{self._verb}: {', '.join(told) or 'nothing'} in {seconds:.1f} s\n")

    def _rate(self, counts: Counts) -> float:
        return (counts.files + counts.unchanged) / max(0.001, time.monotonic() - self._began)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
