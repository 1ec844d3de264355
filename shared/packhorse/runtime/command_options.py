"""Commands that take some of their options as one dataclass; the command line has each of them."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

_Result = TypeVar("_Result")


def with_options(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return the command that takes the fields of each dataclass among the parameters instead."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            parameters += _parameters(groups[name])
        else:
            own = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
            parameters.append(own)

    @wraps(function)
    def command(**given: Any) -> _Result:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return function(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _parameters(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


def _default(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default
