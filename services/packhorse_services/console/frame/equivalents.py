"""What does the same as a page or a button, on the command line and with curl."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_AUTHORIZED = '-H "Authorization: Bearer $TOKEN"'


@dataclass(frozen=True, slots=True)
class Same:
    """`what` is done by either line; both can be pasted into a shell."""

    what: str
    command: str
    curl: str


def same(what: str, words: Sequence[object], curl: str) -> Same:
    """Return the lines; `words` follow `packhorse`, and are quoted as a shell needs it."""
    return Same(what, shlex.join(["packhorse", *map(str, words)]), curl)


def curl(url: str, method: str = "GET", body: str = "") -> str:
    """Return a request with curl; `$TOKEN` stands for the token."""
    parts = ["curl"] + ([] if method == "GET" else ["-X", method])
    text = f"{shlex.join(parts)} {shlex.quote(url)} {_AUTHORIZED}"
    if body:
        text += f" -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    return text
