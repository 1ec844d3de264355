"""`packhorse clear queue`: what it would remove, the question, and the command."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer

from packhorse_services.cli import operate, output
from packhorse_services.cli.api import Api, CommandFailed, Exit, segment

_PAGE = 1_000
_PAGES = 10
"""How many pages are counted for the question; behind them it says "at least"."""


@dataclass(frozen=True, slots=True)
class Covered:
    """How many packages a bound covers, or at least covers."""

    packages: int
    exact: bool

    def __str__(self) -> str:
        """Return the number as a sentence has it: `at least 12 waiting packages`."""
        noun = "waiting package" if self.packages == 1 else "waiting packages"
        return f"{'' if self.exact else 'at least '}{self.packages} {noun}"


def clear(publisher: Api, name: str, up_to: int | None, *, ask: bool, wait_s: float | None) -> None:
    """Tell a subscriber to remove what waits up to an offset, and print the command's id.

    With `wait_s`: wait for it and print how many were removed instead. Raises `CommandFailed`.
    """
    path, headers = f"/queues/{segment(name)}", {}
    if ask:
        seen, headers["If-Match"] = publisher.get_tagged(f"{path}?limit={_PAGE}")
        covered = _covered(publisher, seen, up_to)
        if covered == Covered(0, exact=True) and seen["editable"]:
            where = "" if up_to is None else f" up to offset {up_to}"
            output.tell(f"nothing of agent {seen['agent']} waits for {name}{where}")
            return
        _confirm(f"Remove {covered} of {name}, all of agent {seen['agent']}?")
    body = {} if up_to is None else {"up_to_offset": up_to}
    cleared = publisher.post(f"{path}/clear", body, headers)
    if wait_s is not None:
        applied = operate.await_end(publisher, cleared["command_id"], wait_s)
        output.line(str(applied["removed"]))
        return
    output.line(cleared["command_id"])
    told = Covered(cleared["packages"], cleared["packages"] == cleared["packages_at_most"])
    output.tell(f"{name} is told to remove {told} of agent {cleared['agent']}")


def _covered(publisher: Api, seen: Mapping[str, Any], up_to: int | None) -> Covered:
    """Count what waits up to an offset; a queue is counted only as far as few pages show it."""
    if up_to is None:
        return Covered(seen["at_least"], exact=seen["length"] is not None)
    packages = 0
    for _ in range(_PAGES):
        offsets = [entry["offset"] for entry in seen["entries"]]
        packages += sum(offset <= up_to for offset in offsets)
        if seen["next"] is None or (offsets and offsets[-1] >= up_to):
            return Covered(packages, exact=True)
        seen = publisher.get(seen["next"])
    return Covered(packages, exact=False)


def _confirm(asked: str) -> None:
    if not typer.confirm(asked, err=True):
        raise CommandFailed("nothing was cleared", Exit.FAILED)
