"""What ends a command that did not do what it was asked to: the exit code, and the words."""

import enum
import re

from packhorse.client.errors import Misused, NoAnswerInTime, NotInTime, Refused
from packhorse.client.problems import Words
from packhorse.errors import PackhorseError


class Exit(enum.IntEnum):
    """Exit codes, for scripts."""

    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    TIMEOUT = 124


_CODES = {404: Exit.NOT_FOUND, 409: Exit.CONFLICT, 412: Exit.CONFLICT, 422: Exit.USAGE}
_WORDS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"(`packhorse [^`]*`),? or (?:GET|PUT|POST|PATCH|DELETE) /[^\s,;)]*", r"\1"),
        (r"PUT /subscribers/([^/\s]+)/(pause|stop|resume)\b", r"`packhorse \2 subscriber \1`"),
        (r"PATCH /subscribers/([^/\s]+)/offset\b", r"`packhorse reset offset \1`"),
        (r"GET /queues/([^/\s]+)/errors\b", r"`packhorse get errors \1`"),
        (r"GET /queues/([^/\s,;]+)", r"`packhorse get queue \1`"),
        (
            r"GET /(subscribers|queues|distributions|commands|schedules|job-queues)(?=[\s,;.]|$)",
            r"`packhorse get \1`",
        ),
        (r"GET /distributions/([^/\s,;]+)", r"`packhorse get distribution \1`"),
        (r"POST /distribute\b", "`packhorse distribute`"),
        (r"\b(?:Last-Event-ID|header/last-event-id)\b", "--after"),
        (r"\bin leave_behind\b", "with --leave-behind"),
    )
]


class CommandFailed(PackhorseError):
    """A command did not do what it was asked to; the text is for the user."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code


def exit_code(error: PackhorseError) -> Exit:
    """Return the exit code that an error ends a command with."""
    if isinstance(error, CommandFailed):
        return error.code
    if isinstance(error, Refused):
        return _CODES.get(error.status, Exit.FAILED)
    if isinstance(error, Misused):
        return Exit.USAGE
    return Exit.TIMEOUT if isinstance(error, NoAnswerInTime | NotInTime) else Exit.FAILED


def words(option: str = "--server") -> Words:
    """Return how a client's errors name the options of commands; `option` says the URL."""
    return Words(
        address=option,
        token="--token-file or --token",  # noqa: S106 - the options
        not_sent="That of the stack on --data goes to this stack's own servers only.",
        shown=in_words_of_commands,
    )


def in_words_of_commands(text: str) -> str:
    """Return a text in which requests that commands make are these commands."""
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text
