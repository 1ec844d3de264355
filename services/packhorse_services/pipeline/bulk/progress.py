"""How far a bulk distribution is: a bar on a terminal, else a line of the log every few seconds."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from packhorse.runtime.reason_change import ReasonChange

logger = logging.getLogger(__name__)

_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Amount:
    """Parts, and the nodes in them."""

    parts: int
    nodes: int


def left_s(done: int, total: int, seconds: float) -> float | None:
    """Return how long the rest will take at the rate so far; None before anything is done."""
    return None if done <= 0 else seconds * (total - done) / done


class PhaseProgress:
    """Reports one phase; what the first call of `reached` names was there before it.

    `clock` gives seconds that never go back.
    """

    def __init__(
        self,
        phase: str,
        total: Amount,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._phase, self._total, self._clock = phase, total, clock
        self._before: Amount | None = None
        self._began = self._reported_at = clock()
        self._reason = ReasonChange(clock)
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("parts"),
            TextColumn("{task.fields[nodes]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(phase, total=total.parts, nodes="0 nodes")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def reached(self, now: Amount) -> None:
        """Show how far it is."""
        if self._before is None:
            self._before = now
            self._bar.update(self._task, completed=now.parts)
            return
        done, seconds = now.nodes - self._before.nodes, self._clock() - self._began
        rate = done / max(0.001, seconds)
        shown = f"{now.nodes} of {self._total.nodes} nodes, {rate:.0f}/s"
        self._bar.update(self._task, completed=now.parts, nodes=shown)
        if self._bar.disable and self._clock() - self._reported_at >= _EVERY_S:
            self._reported_at = self._clock()
            left = left_s(done, self._total.nodes - self._before.nodes, seconds)
            self._log(now, rate, left)

    def _log(self, now: Amount, rate: float, left: float | None) -> None:
        known = {
            "parts": now.parts,
            "of_parts": self._total.parts,
            "nodes": now.nodes,
            "of_nodes": self._total.nodes,
            "nodes_per_s": round(rate),
            "eta_s": None if left is None else round(left),
        }
        logger.info(self._phase, extra=known)

    def waits(self, reason: str) -> None:
        """Say why something is tried again: once for each reason, and again after a minute."""
        if not self._reason.is_news(reason):
            return
        if self._bar.disable:
            logger.warning("waits, and tries again", extra={"reason": reason})
        else:
            self._bar.print(f"waits, and tries again: {reason}", markup=False)
