"""Advice names this program as its user has typed it: `packhorse pipeline`, or by its own name."""

from contextvars import ContextVar

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
