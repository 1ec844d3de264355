"""Choosing among the packages of a queue, without looking at each as an object."""

from dataclasses import dataclass

from packhorse.wire.messages import Action

PATH_END, DEEP = b"\0", b"\1"
"""What ends each path in a column of paths, and what stands before the deep paths of an entry."""


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which packages are wanted: those below a path, those of one action, or all."""

    path_prefix: str | None = None
    """Any path or deep path that is this one or lies below it, on segment boundaries (R29)."""
    action: Action | None = None


ALL = EntryFilter()
