"""Text that was written by somebody else, as a terminal may show it."""

import re

# C0 and C1 but tab and newline, what changes the direction of writing, and line separators.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def plain(text: str) -> str:
    r"""Return a text in which nothing steers a terminal: ESC is shown as `\x1b`."""
    return _STEERING.sub(lambda found: ascii(found.group())[1:-1], text)


def one_line(text: str) -> str:
    r"""Return a plain text as one line, in which a newline is shown as `\n` and a tab as `\t`."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")
