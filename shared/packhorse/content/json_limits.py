"""What JSON a repository holds: what Postgres can store, and what stays small when read again."""

import json
import re
from itertools import chain
from typing import Any

from packhorse.content.node import InvalidNode

MAX_DEPTH = 100
MAX_NUMBER_LENGTH = 400
EXPONENTS = range(-324, 309)
"""Those of a double. jsonb writes them out: 1e131071 would come back as 131,072 digits."""

MAX_PROPERTIES_BYTES = 1024 * 1024
"""As the database writes a node's properties, which is what packages carry."""

_EXPONENT = re.compile(r"[eE]([+-]?\d+)$")


def check_json(text: str) -> None:
    """Raise `InvalidNode` for JSON that no repository holds, with the reason.

    That is: a member twice, NaN and its like, U+0000, half a surrogate pair, more than 100
    levels, a number of more than 400 characters or of no double's exponent, or numbers that
    together would be written with more than 1 MiB of digits.
    """
    numbers = _Numbers()
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_float=numbers.check,
            parse_int=numbers.check,
            parse_constant=_refuse_constant,
        )
        _check_values(value)
    except RecursionError:
        raise InvalidNode(f"JSON is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidNode(f"the JSON can't be stored: {error}") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a member twice")
    return members


class _Numbers:
    """Checks one number after the other, and how many digits all of them take."""

    def __init__(self) -> None:
        self._digits = 0

    def check(self, text: str) -> int:
        if len(text) > MAX_NUMBER_LENGTH:
            raise ValueError(f"a number has {len(text)} characters, not {MAX_NUMBER_LENGTH}")
        if found := _EXPONENT.search(text):
            exponent = int(found[1])
            if exponent not in EXPONENTS:
                raise ValueError(f"the number {text[:40]} has the exponent of no double")
            self._digits += abs(exponent)
        self._digits += len(text)
        if self._digits > MAX_PROPERTIES_BYTES:
            raise ValueError("its numbers have too many digits without their exponents")
        return 0


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


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
