"""What JSON a repository holds: what Postgres can store, and what stays small when read again."""

import json
import re
from itertools import chain
from typing import Any

from packhorse.content.node import InvalidNode
from packhorse.runtime.strict_json import json_of

MAX_DEPTH = 100
MAX_NUMBER_LENGTH = 400
EXPONENTS = range(-324, 309)
"""Those of a double. jsonb writes them out: 1e131071 would come back as 131,072 digits."""

MAX_PROPERTIES_BYTES = 1024 * 1024
"""As the database writes a node's properties, which is what packages carry."""

_EXPONENT = re.compile(r"[eE]([+-]?\d+)$")
_PLAIN = bytes.maketrans(b"123456789E.", b"000000000e0")
"""So that outside of texts every exponent, and nothing else, contains `0e`."""


def check_json(text: str) -> None:
    """Raise `InvalidNode` for JSON that no repository holds, with the reason.

    That is: a member twice, NaN and its like, U+0000, half a surrogate pair, more than 100
    levels, a number of more than 400 characters or of no double's exponent, or numbers that
    together would be written with more than 1 MiB of digits.
    """
    numbers = _Numbers()
    try:
        value = json_of(text, numbers=numbers.check)
        _check_values(value)
    except RecursionError:
        raise InvalidNode(f"JSON is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidNode(f"the JSON can't be stored: {error}") from None


def check_exponents(text: bytes, most: int = MAX_PROPERTIES_BYTES) -> None:
    """Raise `InvalidNode` for JSON whose numbers the database would write out with too many digits.

    For what has few exponents, such as what a database wrote: nearly always a look is enough.
    """
    if not _has_exponent(text):
        return
    try:
        json.loads(text, parse_float=_Exponents(most).check, parse_int=len)
    except RecursionError:
        raise InvalidNode("JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidNode(f"the JSON can't be stored: {error}") from None


def _has_exponent(text: bytes) -> bool:
    """Return whether there is one in a number: between texts, where UUIDs and hashes are not.

    Of what is no JSON any answer will do, for the database refuses it.
    """
    if b"\\" in text:  # pairs first: what is left before a quote then escapes it
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"0e" in b"".join(text.split(b'"')[::2]).translate(_PLAIN)


class _Exponents:
    """Checks one exponent after the other, and how many digits all of them stand for."""

    def __init__(self, most: int = MAX_PROPERTIES_BYTES) -> None:
        self._digits, self._most = 0, most

    def check(self, text: str) -> int:
        if found := _EXPONENT.search(text):
            exponent = int(found[1])
            if exponent not in EXPONENTS:
                raise ValueError(f"the number {text[:40]} has the exponent of no double")
            self._count(abs(exponent))
        return 0

    def _count(self, digits: int) -> None:
        self._digits += digits
        if self._digits > self._most:
            raise ValueError("its numbers have too many digits without their exponents")


class _Numbers(_Exponents):
    """Checks the length of each number too, and counts its own digits."""

    def check(self, text: str) -> int:
        if len(text) > MAX_NUMBER_LENGTH:
            raise ValueError(f"a number has {len(text)} characters, not {MAX_NUMBER_LENGTH}")
        self._count(len(text))
        return super().check(text)


def _check_values(value: Any) -> None:
    """Go through all values, level by level."""
    level, depth = [value], 0
    while level:
        for text in level:
            if isinstance(text, str):
                _check_text(text)
        objects = [found for found in level if isinstance(found, dict)]
        lists = [found for found in level if isinstance(found, list)]
        depth += bool(objects or lists)
        if depth > MAX_DEPTH:
            raise RecursionError
        level = [*chain.from_iterable(lists)]
        for members in objects:
            level += [*members, *members.values()]


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("a text holds the character U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair") from None
