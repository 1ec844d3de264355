"""The newest lines of this console's own audit log: they know from where somebody acted."""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from packhorse.runtime import audit, tracing

_MOST = 1_000


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One line; `about` is the command or the distribution that came of it, else its trace."""

    at: datetime
    who: str
    address: str
    what: str
    says: str
    about: str
    outcome: str


class _Listener(logging.Handler):
    def __init__(self, lines: deque[AuditLine]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(_line(vars(record)))


@dataclass
class RecentAudit:
    """At most 1,000 lines, in memory; the log itself is what keeps them."""

    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    _lines: deque[AuditLine] = field(default_factory=lambda: deque(maxlen=_MOST))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Remember what is written until the block ends."""
        listener, log = _Listener(self._lines), logging.getLogger(audit.LOGGER)
        log.addHandler(listener)
        try:
            yield
        finally:
            log.removeHandler(listener)

    def lines(self) -> Sequence[AuditLine]:
        """Return them, the newest first."""
        return list(self._lines)[::-1]


def _line(told: dict[str, Any]) -> AuditLine:
    says = [told["form"]] if told.get("form") else []
    says += [f"changed {told['changed']}"] if told.get("changed") is not None else []
    reason = [str(told.get("status", "")), str(told.get("reason", ""))]
    failed = told["outcome"] != audit.AuditOutcome.DONE
    return AuditLine(
        datetime.fromtimestamp(told["created"], UTC),
        str(told.get("caller", "")),
        str(told.get("address", "")),
        f"{told.get('method', '')} {told.get('object', '')}",
        ", ".join(says + ([" ".join(reason).strip()] if failed else [])),
        str(told.get("command") or told.get("distribution") or tracing.trace_id()),
        str(told["outcome"]),
    )
