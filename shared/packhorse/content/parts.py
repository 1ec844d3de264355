"""Parts of a subtree: its nodes within a range of paths, so that a large one can go in pieces.

Paths compare by their UTF-8 bytes, as `COLLATE "C"` does. That is Python's order of strings, by
code points, since UTF-8 keeps it and `check_path` lets no lone surrogate in. A range alone is not
enough: `/a-b` sorts between `/a` and `/a/b` and lies outside `/a`.
"""

from dataclasses import dataclass

from packhorse.content.node import ROOT, InvalidPath, check_path, is_within, subtree_range


@dataclass(frozen=True, slots=True)
class SubtreePart:
    """The node `top` if it `holds_top`, and all nodes below it with a path >= low and < high."""

    top: str
    holds_top: bool
    low: str
    high: str

    @classmethod
    def whole(cls, top: str) -> "SubtreePart":
        """Return all of the subtree; the root is no node and so not held."""
        return cls(top, top != ROOT, *subtree_range(top))

    @classmethod
    def between(cls, top: str, first: str, end: str) -> "SubtreePart":
        """Return what of the subtree is >= `first` and < `end`; empty is an open end.

        Raises `InvalidPath` for what is no path, a bound outside the subtree, and a range that
        can hold nothing.
        """
        whole = cls.whole(check_path(top))
        for bound in filter(None, (first, end)):
            if not is_within(check_path(bound), top):
                raise InvalidPath(f"the bound {bound!r} lies outside {top!r}; name a path in it")
        if end and (first or top) >= end:
            raise InvalidPath(f"the range begins at {first or top!r} and ends at {end!r}: no path")
        return cls(
            top,
            whole.holds_top and first in ("", top),
            max(whole.low, first),
            end or whole.high,
        )

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the subtree."""
        return self == SubtreePart.whole(self.top)

    def holds(self, path: str) -> bool:
        """Return whether `path` lies in this part."""
        return self.holds_top if path == self.top else self.low <= path < self.high
