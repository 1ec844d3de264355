"""Acts in pages, newest first, of lists that each go on behind a place of their own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from packhorse.runtime.paging import read_cursor, write_cursor


@dataclass(frozen=True, slots=True)
class Act:
    """One act; `where` is the address that it came from, empty where only the log knows it."""

    at: datetime
    who: str
    where: str
    what: str
    says: str
    link: str
    result: str
    number: str

    @property
    def key(self) -> tuple[datetime, str]:
        """What orders acts."""
        return self.at, self.number


@dataclass(frozen=True, slots=True)
class ActPlace:
    """The last act of a page, and from where on publishers have what follows."""

    at: datetime
    number: str
    sent: str
    command: str

    @classmethod
    def of(cls, cursor: str) -> Self:
        """Return the place of a cursor. Raises `ValueError` for what is none of ours."""
        try:
            at, number, sent, command = json.loads(read_cursor(cursor))
            moment = datetime.fromisoformat(at)
            if moment.tzinfo is None:
                raise ValueError(at)
            return cls(moment, str(number), str(sent), str(command))
        except (TypeError, ValueError, RecursionError):
            raise ValueError("this page is not known; begin with the newest") from None

    @property
    def cursor(self) -> str:
        """The place as a text of an address."""
        place = self.at.isoformat(), self.number, self.sent, self.command
        return write_cursor(json.dumps(place))


@dataclass(frozen=True, slots=True)
class ReadActs:
    """Acts of a list of the publisher, newest first, each with the cursor of what has it next."""

    acts: Sequence[tuple[Act, str]]
    end: str
    """The cursor of what follows; where all is read that is asked for, of the last page."""
    down_to: datetime | None
    """Older ones were not read; None: all that is asked for was."""

    def cursor(self, shown: "ShownActs") -> str:
        """Return where the acts begin that are not shown."""
        left = (cursor for act, cursor in self.acts if shown.leaves(act))
        return next(left, self.end)


@dataclass(frozen=True, slots=True)
class ShownActs:
    """A page of acts; `last` is where it ends, None where nothing follows."""

    acts: Sequence[Act] = ()
    last: tuple[datetime, str] | None = None
    following: str = ""
    silent: Sequence[str] = ()

    def leaves(self, act: Act) -> bool:
        """Return whether an act is on a later page."""
        return self.last is not None and act.key < self.last


def cut(acts: Sequence[Act], most: int, down_to: Sequence[datetime]) -> ShownActs:
    """Return up to so many of these, newest first; they end where a list was not read further."""
    bound = max(down_to, default=None)
    known = [one for one in acts if bound is None or one.at >= bound]
    if len(known) > most:
        return ShownActs(known[:most], known[most - 1].key)
    return ShownActs(known, None if bound is None else (bound, ""))
