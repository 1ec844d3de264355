"""JSON as RFC 8259 has it, where Python's own reader takes more and keeps less."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any


def json_of(text: str, *, numbers: Callable[[str], Any] | None = None) -> Any:
    """Return what JSON says, with its numbers as `numbers` reads them, or else as Python does.

    Raises `ValueError`, also for a member twice and for NaN and its like, and `RecursionError` for
    what is nested too deep.
    """
    return json.loads(
        text,
        object_pairs_hook=_members,
        parse_float=numbers,
        parse_int=numbers,
        parse_constant=_refuse_constant,
    )


def same_json(one: str | bytes, other: str | bytes) -> bool:
    """Return whether two JSON texts say the same, as jsonb compares them.

    1 is 1.0, and true is not 1, as it is to Python. Raises `ValueError` for what is no JSON.
    """
    return bool(_comparable(one) == _comparable(other))


def _comparable(text: str | bytes) -> Any:
    """Return what JSON says, with each number in a tuple, so that no boolean equals it."""
    return json.loads(text, parse_float=_number, parse_int=_number)


def _number(text: str) -> tuple[Decimal]:
    return (Decimal(text),)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a member twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
