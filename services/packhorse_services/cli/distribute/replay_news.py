"""What a replay reports on the way: how far it is, and why it waits; a terminal shows a bar."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from packhorse.client.errors import ClientError, Refused
from packhorse.runtime.reason_change import ReasonChange
from packhorse_services.cli.client import output

_EVERY_S = 10.0
_EVERY_LINES = 500


@dataclass(slots=True)
class Tally:
    """What became of the lines so far."""

    published: int = 0
    repeated: int = 0
    behind: int = 0
    """Lines up to the last one that was dealt with before: published, or refused."""
    last_before: int = -1
    refused: int = 0
    last: int | None = None

    def sentence(self, seconds: float) -> str:
        """Return the summary."""
        parts = [f"{self.published} published"]
        parts += [f"{self.repeated} had been published already"] if self.repeated else []
        parts += [self._behind()] if self.behind else []
        parts += [f"{self.refused} refused"] if self.refused else []
        where = "" if self.last is None else f"; the last line is {self.last}"
        return f"{', '.join(parts)} in {seconds:.1f} s{where}"

    def _behind(self) -> str:
        """Say no more than is known: the publisher keeps the last number, not each one's fate."""
        lines = "1 line" if self.behind == 1 else f"{self.behind} lines"
        return (
            f"{lines} up to line {self.last_before} dealt with by an earlier replay "
            "(published or refused)"
        )


class News:
    """Reports on stderr. `clock` gives seconds that never go back."""

    def __init__(
        self, name: str, total: int | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._total, self._clock = name, total, clock
        self._lines = self._reported_lines = 0
        self._reported_at = clock()
        self._reason = ReasonChange(clock)
        self._bar = output.bars()
        self._task = self._bar.add_task(name, total=total)
        self._bar.start()

    def line(self, tally: Tally) -> None:
        """Note that a line is done with."""
        self._lines += 1
        self._bar.advance(self._task)
        late = self._clock() - self._reported_at >= _EVERY_S
        if self._bar.disable and (late or self._lines - self._reported_lines >= _EVERY_LINES):
            self._reported_at, self._reported_lines = self._clock(), self._lines
            of = "" if self._total is None else f" of {self._total}"
            refused = f", {tally.refused} refused" if tally.refused else ""
            output.report(
                f"{self._name}: {self._lines}{of} lines, {tally.published} published{refused}"
            )

    def waits(self, error: ClientError) -> None:
        """Say why a line is sent again: once for each reason, and again after a minute of it."""
        reason = f"{error.status} {error.kind}" if isinstance(error, Refused) else "no answer"
        if not self._reason.is_news(reason):
            return
        why = [one for one in str(error).splitlines() if not one.startswith("Try again")]
        wait_s = error.retry_after_s if isinstance(error, Refused) else None
        when = "soon" if wait_s is None else f"in {wait_s:g} s"
        output.report(f"{self._name} waits, and tries again {when}: {'; '.join(why)}")

    def end(self, sentence: str) -> None:
        """Remove the bar, and report what became of everything."""
        self._bar.stop()
        output.report(sentence)
