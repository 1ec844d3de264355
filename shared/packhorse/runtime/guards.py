"""What is checked of a request before the first byte of its body is read."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from fastapi.dependencies.models import Dependant
from starlette.requests import Request

Check = Callable[[Request], Awaitable[object]]

_CHECKS: dict[Callable[..., Any], Check] = {}


def checked_first(dependency: Callable[..., Any], check: Check) -> None:
    """Let routes with `dependency` call `check` before they read the body.

    The framework reads it before it calls any dependency, so that a stranger's would be read.
    """
    _CHECKS[dependency] = check


def checks_of(dependant: Dependant) -> Iterator[Check]:
    """Yield the checks of a route, in the order of its dependencies."""
    for below in dependant.dependencies:
        yield from checks_of(below)
    if dependant.call in _CHECKS:
        yield _CHECKS[dependant.call]


def check_of(dependency: Dependant) -> Check:
    """Return the check that gives what a dependency gives. Raises `TypeError` when it has none."""
    check = _CHECKS.get(dependency.call) if dependency.call else None
    if check is None:
        raise TypeError(f"{dependency.name} is made by more than a check")
    return check
