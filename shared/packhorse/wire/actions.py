"""What each action writes, removes, carries and shows: the one place that knows.

Every question is an exhaustive `match`, so a new action does not type-check before each of them
has an answer. An action that were taken for one that changes nothing would let an older
state overwrite a newer one (R6). ADD comes first, for nearly every package is one.
"""

from typing import assert_never

from packhorse.wire.messages import Action, PackageEntry

Paths = tuple[str, ...]


def touched(entry: PackageEntry) -> tuple[Paths, Paths]:
    """Return the single nodes and the whole subtrees whose state a package carries."""
    match entry.action:
        case Action.ADD:
            return entry.paths, entry.deep_paths
        case Action.DELETE:
            return (), (*entry.paths, *entry.deep_paths)
        case Action.TEST | Action.INVALIDATE:
            return (), ()
        case _ as unknown:
            assert_never(unknown)


def exports(action: Action) -> bool:
    """Return whether a package carries nodes, and so has a body."""
    match action:
        case Action.ADD:
            return True
        case Action.DELETE | Action.TEST | Action.INVALIDATE:
            return False
        case _ as unknown:
            assert_never(unknown)


def removes(action: Action) -> bool:
    """Return whether a package takes its paths away, with all below them."""
    match action:
        case Action.ADD | Action.TEST | Action.INVALIDATE:
            return False
        case Action.DELETE:
            return True
        case _ as unknown:
            assert_never(unknown)


def notifies(action: Action) -> bool:
    """Return whether an import announces the paths to whoever listens at the subscriber."""
    match action:
        case Action.ADD | Action.DELETE | Action.TEST:
            return False
        case Action.INVALIDATE:
            return True
        case _ as unknown:
            assert_never(unknown)


def is_probe(action: Action) -> bool:
    """Return whether a package only shows that the way is open.

    It needs no path, is always accepted, changes nothing, and no queue shows it.
    """
    match action:
        case Action.ADD | Action.DELETE | Action.INVALIDATE:
            return False
        case Action.TEST:
            return True
        case _ as unknown:
            assert_never(unknown)
