"""Names that strangers give: topics, patterns of topics, ids, queues; and their properties.

A topic is hierarchical: segments of letters, digits, `_`, `.` and `-`, parted by `/`. A pattern is
a topic, or one that ends in `/*` (one segment more) or `/**` (any number more), or `**` (all).
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any

import orjson

from packhorse.content.json_limits import check_exponents
from packhorse.content.node import InvalidNode
from packhorse.errors import Permanent

MAX_NAME = 255
"""Characters of a topic, a pattern, an id, a queue or a schedule."""
MAX_PROPERTIES = 64 * 1024
"""Bytes of properties as JSON in UTF-8; also of the digits that jsonb writes for exponents."""

_SEGMENT = r"[A-Za-z0-9_.-]+"
_TOPIC = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""The escape in JSON text, not a text that has a backslash and `u0000` in it."""
_DEEP, _CHILDREN = "/**", "/*"

Properties = Mapping[str, Any]
"""A JSON object."""


class InvalidName(Permanent):
    """A topic, pattern, id or name that packhorse does not take; the text says why."""


class InvalidProperties(Permanent):
    """Properties that are no JSON object, or too large; the text says why."""


def require_topic(text: str) -> str:
    """Return a topic as it is. Raises `InvalidName`."""
    if not _TOPIC.fullmatch(text) or len(text) > MAX_NAME:
        raise InvalidName(
            f"{text[:80]!r} is no topic: segments of letters, digits, '_', '.' and '-' parted by "
            f"'/', at most {MAX_NAME} characters, such as 'images/thumbnail'"
        )
    return text


def require_pattern(text: str) -> str:
    """Return a pattern of topics as it is. Raises `InvalidName`."""
    if text != "**":
        base = text.removesuffix(_DEEP) if text.endswith(_DEEP) else text.removesuffix(_CHILDREN)
        if not _TOPIC.fullmatch(base) or len(text) > MAX_NAME:
            raise InvalidName(
                f"{text[:80]!r} is no pattern of topics: a topic, one that ends in '/*' or '/**', "
                "or '**'"
            )
    return text


def require_name(text: str, what: str) -> str:
    """Return the name of a queue or a schedule as it is. Raises `InvalidName`."""
    if not _NAME.fullmatch(text) or len(text) > MAX_NAME:
        raise InvalidName(
            f"{text[:80]!r} is no name of a {what}: letters, digits, '_', '.' and '-', at most "
            f"{MAX_NAME}"
        )
    return text


def require_id(text: str) -> str:
    """Return the id that a job is known by to whoever gives it. Raises `InvalidName`."""
    if not text or len(text) > MAX_NAME or not text.isprintable():
        raise InvalidName(f"a job's id has 1 to {MAX_NAME} printable characters")
    return text


def require_properties(properties: Properties) -> Properties:
    """Return properties as they are. Raises `InvalidProperties`, also for NaN and Infinity."""
    if not isinstance(properties, Mapping):
        raise InvalidProperties(f"properties are a JSON object, not {type(properties).__name__}")
    try:
        stored = orjson.dumps(dict(properties))
    except (TypeError, ValueError) as error:
        raise InvalidProperties(f"properties are a JSON object: {error}") from error
    if len(stored) > MAX_PROPERTIES:
        raise InvalidProperties(
            f"the properties have {len(stored)} bytes as JSON and may have {MAX_PROPERTIES}; put "
            "what is large into the blob store and give its key"
        )
    if _NUL.search(stored):
        raise InvalidProperties("properties must not hold U+0000: the database has no such text")
    try:
        check_exponents(stored, MAX_PROPERTIES)
    except InvalidNode as error:
        raise InvalidProperties(f"properties: {error}") from error
    if b"null" in stored:
        _require_finite(dict(properties))
    return properties


def _require_finite(properties: dict[Any, Any]) -> None:
    """Refuse what JSON has no number for, and orjson would write as null."""
    left: list[tuple[str, Any]] = [("the properties", properties)]
    while left:
        name, value = left.pop()
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, float) and not isfinite(value):
            raise InvalidProperties(
                f"{name[:80]!r} is {value}, which JSON can't hold; leave it out, or give None"
            )
        if isinstance(value, Mapping):
            left += ((str(key), inner) for key, inner in value.items())
        elif isinstance(value, list | tuple):
            left += ((name, inner) for inner in value)
        elif is_dataclass(value):
            left += ((one.name, getattr(value, one.name)) for one in fields(value))


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern, which is valid, covers a topic."""
    if pattern == "**":
        return True
    if pattern.endswith(_DEEP):
        return topic.startswith(pattern.removesuffix("**"))
    if pattern.endswith(_CHILDREN):
        head, _, last = topic.rpartition("/")
        return bool(last) and head == pattern.removesuffix(_CHILDREN)
    return pattern == topic


def closeness(pattern: str) -> tuple[int, int]:
    """Return how close a pattern is, to sort by: exact before `/*` before `/**`, longer first."""
    if pattern == "**":
        return (3, 0)
    kind = 2 if pattern.endswith(_DEEP) else 1 if pattern.endswith(_CHILDREN) else 0
    return (kind, -len(pattern))
