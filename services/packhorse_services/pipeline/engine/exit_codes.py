"""How a command ends other than done: one line on standard error, and an exit code.

The line names this program as its user has typed it: `packhorse pipeline`, or by its own name.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from sqlalchemy.exc import ArgumentError, OperationalError

from packhorse.db.connect import AWAY
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import JournalUnavailable, TopicMissing
from packhorse.packages.build import PathMissing
from packhorse.runtime.configuration import loaded
from packhorse.runtime.startup import CANT_START_NOW, WRONG_CONFIGURATION
from packhorse_services.pipeline.engine.databases import (
    AUTHOR_SETTING,
    JOURNAL_SETTING,
    SUBSCRIBERS_SETTING,
    author_away,
    is_misnamed,
    is_same,
    journal_away,
    no_topic,
)
from packhorse_services.pipeline.errors import Conflict, NotThere
from packhorse_services.pipeline.settings import Settings

PROGRAM = "packhorse-pipeline"
"""The name in all texts of this package."""
SHORT = "packhorse pipeline"
"""The same program, as the command line starts it with the settings of its stack."""

_typed: ContextVar[str] = ContextVar("typed", default=PROGRAM)


def remember_typed(name: str) -> None:
    """Let `as_typed` name the program so; what starts it by its module is no name for a person."""
    _typed.set(SHORT if name == SHORT else PROGRAM)


def as_typed(text: str) -> str:
    """Return the text with the program's name as the user has typed it."""
    return text.replace(f"{PROGRAM} ", f"{_typed.get()} ")


FAILED = CANT_START_NOW
"""Exit code when the same command may succeed later, unchanged."""
NOT_THERE = 3
"""Exit code when what the command names is not there; `packhorse` has it so too."""
CONFLICT = 4
"""Exit code when somebody else's work is in the way."""

_CODES: Mapping[type[PackhorseError], int] = {
    NotThere: NOT_THERE,
    PathMissing: NOT_THERE,
    Conflict: CONFLICT,
    Transient: FAILED,
}


@contextmanager
def plain_ends() -> Iterator[None]:
    """Turn packhorse's own errors, and a database that is away, into a line and `SystemExit`."""
    try:
        yield
    except PackhorseError as error:
        report_error(error_text(error))
        raise SystemExit(exit_code(error)) from None
    except (*AWAY, OperationalError) as error:
        report_error(author_away(error))
        raise SystemExit(WRONG_CONFIGURATION if is_misnamed(error) else FAILED) from None
    except ArgumentError:  # its words may quote the password
        report_error(
            f"that is no URL of a database; look at {AUTHOR_SETTING}, {JOURNAL_SETTING} and "
            f"{SUBSCRIBERS_SETTING}, and use postgresql://user:password@host:port/database"
        )
        raise SystemExit(WRONG_CONFIGURATION) from None


def exit_code(error: PackhorseError) -> int:
    """Return 1 for what may be run again as it is; else 2, or 3 or 4 where that says more."""
    if isinstance(error, JournalUnavailable) and is_misnamed(error):
        return WRONG_CONFIGURATION
    found = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return next(found, WRONG_CONFIGURATION)


def error_text(error: PackhorseError) -> str:
    """Return the error in one line; of a journal that fails also the setting to look at."""
    if isinstance(error, JournalUnavailable):
        return journal_away(error)
    if isinstance(error, TopicMissing):
        return no_topic(error, _whose_journal())
    return " ".join(str(error).split())


def _whose_journal() -> str:
    """Return whose database the journal's URL names, if the settings have it as another's."""
    settings = loaded(Settings)
    journal, author = settings.journal_url, settings.database_url
    if author is not None and is_same(journal, author.get_secret_value()):
        return "the author's database"
    for name, url in settings.subscriber_databases.items():
        if is_same(journal, url.get_secret_value()):
            return f"the database of subscriber {name}"
    return ""


def report_error(text: str) -> None:
    """Write the one line of an end other than done; it names this program as it was typed."""
    sys.stderr.write(f"error: {as_typed(text)}\n")
