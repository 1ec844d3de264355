"""Conditions on properties as people type them: `size>=10`, `color=red`, `name="10"`."""

import json
import re
from collections.abc import Sequence
from typing import Any

from packhorse.jobs.filters import InvalidFilter, Template, parse_templates
from packhorse.runtime.strict_json import same_json

_CONDITION = re.compile(r"([^=<>!~]+)([=<>!~]+)(.*)", re.DOTALL)


def template_of(texts: Sequence[str]) -> Template:
    """Return the template whose conditions are the texts; all of them have to hold.

    A text is a property's name, an operator and a value: a number, true, false or null is that, a
    text in quotes is what JSON says, and all else is itself, unless it begins as an operator does.
    Raises `InvalidFilter`.
    """
    template: dict[str, Any] = {}
    for text in texts:
        key, value = _parsed(text)
        if not same_json(json.dumps(template.setdefault(key, value)), json.dumps(value)):
            raise InvalidFilter(f"{text[:80]!r}: the property is compared so with another value")
    parse_templates([template])
    return template


def _parsed(text: str) -> tuple[str, Any]:
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise InvalidFilter(
            f"{text[:80]!r} is no condition: a property, one of = < <= > >=, and a value, such as "
            "'size>=10'"
        )
    name, operator, value = (part.strip() for part in found.groups())
    return operator + name, _scalar(value)


def _scalar(text: str) -> Any:
    try:
        found = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(found, dict | list) else found
