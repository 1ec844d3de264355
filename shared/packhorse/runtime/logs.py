"""One configuration of logging for a process: JSON lines or a console, on standard error."""

import json
import logging
import logging.config
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from packhorse.runtime import tracing
from packhorse.runtime.audit import LOGGER as AUDIT
from packhorse.runtime.outage import Outage
from packhorse.runtime.plain_text import plain

logger = logging.getLogger(__name__)

_LIBRARIES = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


def configure(format: Literal["json", "console"] = "json", level: str = "INFO") -> None:  # noqa: A002
    """Send every record of stdlib logging to standard error, one line each.

    `extra` becomes members of the line; a trace id is added where there is one.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else _console())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger(AUDIT).setLevel(logging.INFO)  # whatever is left out of the others
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    for chatty in ("uvicorn.access", "httpx", "httpcore", "alembic", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # who uses a connection reports its end
    pools = logging.getLogger("psycopg.pool")
    pools.setLevel(logging.WARNING)
    pools.filters[:] = [_Lasting("the database can't be reached now")]


class _Lasting(logging.Filter):
    """Has a fault that is logged again and again told by an `Outage`."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self._outage = Outage(logger, failing, "")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False: the outage writes what is written."""
        self._outage.failed(record.getMessage())
        return False


class JsonLines(logging.Formatter):
    """An object a line. Each request that changes something has one, so it is made by hand.

    structlog's chain of steps takes three times as long.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; JSON has no character that steers a terminal."""
        line: dict[str, Any] = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _OWN)
        line["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        _add_trace(None, "", line)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
"""What a record has besides `extra`."""


def _console() -> logging.Formatter:
    # By default it shows the local variables of an exception, passwords among them.
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    first: list[Callable[..., Any]] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace,
    ]
    last: list[Callable[..., Any]] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        _drop_colour,
        structlog.processors.format_exc_info,
        _show_plainly,
        renderer,
    ]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=first, processors=last)


def _add_trace(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    trace = tracing.trace_id()
    if trace:
        event["trace_id"] = trace
    return event


def _show_plainly(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Keep what others wrote from steering the terminal, tracebacks with their messages too."""
    return {
        plain(name): value if isinstance(value, int | float | None) else plain(str(value))
        for name, value in event.items()
    }


def _drop_colour(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    event.pop("color_message", None)
    return event
