"""Values of JCR properties: as the text of a docview attribute, and as JSON.

A string, a boolean and a long are what they are in JSON. What JSON has no type for says its type in
a property beside it, as Sling's POST servlet has it: `"date@TypeHint": "Date"`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from packhorse_services.content.transfer.sources import NotImportable

HINT = "@TypeHint"
_TEXTS = ("String", "Date", "Name", "Path", "Reference", "WeakReference", "URI", "Decimal")
_TYPES = frozenset((*_TEXTS, "Boolean", "Long", "Double", "Binary", "BinaryRef"))
_LONG = range(-(2**63), 2**63)
_EMPTY = "\\0"
"""How an array says that its one value is the empty string."""


class NoValue(ValueError):
    """The value has no form there; the text says why."""


@dataclass(frozen=True, slots=True)
class JcrValue:
    """A property's value: a type's name, and one text, or in a list any number."""

    type: str
    values: tuple[str, ...]
    is_list: bool = False

    @classmethod
    def parsed(cls, text: str) -> "JcrValue":
        """Return what a docview attribute says."""
        kind, _, rest = text.removeprefix("{").partition("}")
        if text.startswith("{") and kind in _TYPES:
            text = rest
        else:
            kind = "String"
        if not text.startswith("["):
            return cls(kind, ("".join(part for part, _ in _letters(text)),))
        body = text[1:].removesuffix("]")
        if body == _EMPTY:
            return cls(kind, ("",), is_list=True)
        return cls(kind, tuple(_split(body)) if body else (), is_list=True)

    def formatted(self) -> str:
        """Return it as a docview attribute."""
        kind = "" if self.type == "String" else f"{{{self.type}}}"
        if not self.is_list:
            [one] = self.values
            escaped = _escaped(one)
            looks_other = one.startswith("[") or (not kind and one.startswith("{"))
            return kind + ("\\" if looks_other else "") + escaped
        if self.values == ("",):
            return f"{kind}[{_EMPTY}]"
        escaped = ",".join(_escaped(one).replace(",", "\\,") for one in self.values)
        return f"{kind}[{escaped}]"

    def as_json(self) -> tuple[Any, str]:
        """Return it for JSON, and the hint that JSON needs beside it, or nothing."""
        values, hint = [], self.type if self.type not in _PLAIN or not self.values else ""
        for one in self.values:
            try:
                values.append(_READ.get(self.type, str)(one))
            except ValueError:
                values, hint = list(self.values), self.type
                break
        hint = "" if hint == "String" else hint
        if self.is_list:
            return values, hint and f"{hint}[]"
        return values[0], hint

    @classmethod
    def of_json(cls, value: Any, hint: str) -> "JcrValue":
        """Return the value of a property in JSON, with fractions as decimals. Raises `NoValue`."""
        values = value if isinstance(value, list) else [value]
        kinds = {_kind(one) for one in values}
        if kinds == {"Double", "Decimal"}:
            kinds = {"Decimal"}
        kind = hint.removesuffix("[]") or next(iter(kinds), "String")
        if kind not in _TYPES or (not hint and len(kinds) > 1):
            raise NoValue("its values are of several types, or of a type that JCR does not have")
        return cls(kind, tuple(_written(one) for one in values), isinstance(value, list))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\")


def _letters(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the letters, each with whether it was escaped."""
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            yield text[at], False
            at += 1
        elif text[at + 1] == "u" and re.fullmatch("[0-9a-fA-F]{4}", text[at + 2 : at + 6]):
            letter = chr(int(text[at + 2 : at + 6], 16))
            if letter == "\0" or "\ud800" <= letter <= "\udfff":
                raise NotImportable(f"a value holds {text[at : at + 6]}, which is no character")
            yield letter, True
            at += 6
        else:
            yield text[at + 1], True
            at += 2


def _split(text: str) -> Iterator[str]:
    value: list[str] = []
    for letter, is_escaped in _letters(text):
        if letter == "," and not is_escaped:
            yield "".join(value)
            value = []
        else:
            value.append(letter)
    yield "".join(value)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _long(text: str) -> int:
    if (number := int(text)) not in _LONG or str(number) != text:
        raise ValueError
    return number


def _double(text: str) -> float:
    if not math.isfinite(number := float(text)) or repr(number) != text:
        raise ValueError
    return number


_READ: Mapping[str, Any] = {"Boolean": _boolean, "Long": _long, "Double": _double}
_PLAIN = ("String", "Boolean", "Long")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "Boolean"
    if isinstance(value, int):
        return "Long" if value in _LONG else "Decimal"
    if isinstance(value, Decimal):
        return "Double" if _as_double(value) == value else "Decimal"
    if isinstance(value, str):
        return "String"
    raise NoValue("null, and objects and lists in it, have no form in JCR")


def _written(value: Any) -> str:
    kind = _kind(value)
    if kind == "Double":
        value = float(value)
    return str(value).lower() if kind == "Boolean" else str(value)


def _as_double(value: Decimal) -> Decimal:
    return Decimal(repr(float(value)))
