"""Metadata of many packages in columns: 30 bytes an entry and the bytes of its paths (R17).

Objects would cost thirty times as much. A segment holds consecutive packages of one publisher
agent; its numbers are relative to its first entry, and the few that don't fit go aside.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from packhorse.content.node import MAX_PATH_BYTES
from packhorse.messaging.api import Record
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import ACTION_NUMBERS, EntryRow
from packhorse_services.publisher.queues.cache.filters import DEEP, PATH_END, EntryFilter

_ENTRIES = 4096
_PATH_BYTES = 1024 * 1024
_USERS = 255
_MAX_SHORT = 2**15 - 1
_MAX_SIGNED = 2**31 - 1
_MAX_UNSIGNED = 2**32 - 1
_NAME_CHARACTERS = 200
"""Of a strange id, and of a user."""
_ACTIONS = {number: action for action, number in ACTION_NUMBERS.items()}
_UNDECODABLE = 255
_OWN_ID = re.compile(r"dstrpck-([1-9][0-9]{0,14})-([0-9a-f]{16})").fullmatch
_BEFORE_PATH, _BEHIND_SEGMENT = (PATH_END, DEEP), (PATH_END, b"/")
_END, _DEEP = PATH_END.decode(), DEEP.decode()


Row = tuple[Record, EntryRow]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """What a queue shows of one package; `action` is None when its record can't be read."""

    offset: int
    time_ms: int
    """When it entered the log, by the log's clock."""
    package_id: str
    action: Action | None
    size: int
    """Bytes of the body as stored."""
    user: str
    paths: tuple[str, ...]
    deep_paths: tuple[str, ...]
    range_from: str = ""
    range_to: str = ""
    targets: tuple[str, ...] = ()
    """The subscribers that it is for; empty: all."""


class ColumnSegment:
    """Up to 4,096 entries in offset order; appended by one thread, sealed when full."""

    __slots__ = (
        *("first", "last", "body_bytes", "_base_ms", "_offsets", "_times", "_accepted", "_sizes"),
        *("_tokens", "_path_ends", "_actions", "_users", "_paths", "_user_numbers", "_odd_ids"),
        *("_odd_sizes", "_ranges", "_targets", "_aside_characters"),
    )

    def __init__(self, first: Record) -> None:
        self.first = self.last = first.offset
        self.body_bytes = 0
        """Bytes of the bodies of all entries here."""
        self._base_ms = first.time_ms
        self._offsets = array("I")
        self._times = array("i")
        self._accepted = array("h")
        self._sizes = array("I")
        self._tokens = array("Q")
        self._path_ends = array("I")
        self._actions = bytearray()
        self._users = bytearray()
        self._paths: bytearray | bytes = bytearray()
        self._user_numbers: dict[str, int] = {}
        self._odd_ids: dict[int, str] = {}
        self._odd_sizes: dict[int, int] = {}
        self._ranges: dict[int, tuple[str, str]] = {}
        self._targets: dict[int, tuple[str, ...]] = {}
        self._aside_characters = 0

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size(self) -> int:
        """Bytes of the columns, about."""
        columns = (self._offsets, self._times, self._accepted, self._sizes, self._tokens)
        numbers = sum(column.itemsize * len(column) for column in (*columns, self._path_ends))
        aside = 150 * (len(self._odd_ids) + len(self._odd_sizes) + 2 * len(self._ranges))
        aside += 150 * len(self._targets) + 4 * self._aside_characters
        return numbers + 2 * len(self._actions) + len(self._paths) + aside

    def extend(self, rows: Sequence[Row]) -> int:
        """Append the first of `rows`, as many as there is room for, and return their number.

        A new segment takes one at least. Whole columns are made at a time: that is what makes
        filling fast.
        """
        rows = rows[: _ENTRIES - len(self)]
        texts = [_path_text(row[4], row[5]) for _, row in rows]
        ends = list(accumulate(map(len, texts), initial=len(self._paths)))[1:]
        least = 0 if self._offsets else 1
        if not self._fits(rows):
            rows = rows[:least]
        elif rows and ends[-1] > _PATH_BYTES:
            rows = rows[: max(bisect_right(ends, _PATH_BYTES), least)]
        if rows:
            self._paths += b"".join(texts[: len(rows)])
            self._path_ends.extend(ends[: len(rows)])
            self._append(rows)
        return len(rows)

    def _fits(self, rows: Sequence[Row]) -> bool:
        """Return whether all numbers of these rows fit into the columns."""
        if not rows:
            return True
        times = [record.time_ms for record, _ in rows]
        users = dict.fromkeys(row[2][:_NAME_CHARACTERS] for _, row in rows)
        for user in users:
            if user not in self._user_numbers and len(self._user_numbers) < _USERS:
                self._user_numbers[user] = len(self._user_numbers)
                self._aside_characters += 40 + len(user)
        return (
            rows[-1][0].offset - self.first <= _MAX_UNSIGNED
            and min(times) >= self._base_ms - _MAX_SIGNED
            and max(times) <= self._base_ms + _MAX_SIGNED
            and users.keys() <= self._user_numbers.keys()
        )

    def _append(self, rows: Sequence[Row]) -> None:
        base, first, numbers = self._base_ms, self.first, self._user_numbers
        self._users.extend([numbers[row[2][:_NAME_CHARACTERS]] for _, row in rows])
        self._actions.extend([row[3] for _, row in rows])
        self._times.extend([record.time_ms - base for record, _ in rows])
        self._append_sizes([row[1] for _, row in rows])
        self._append_ids(rows)
        self._append_few(rows)
        self._offsets.extend([record.offset - first for record, _ in rows])
        self.last = rows[-1][0].offset

    def _append_sizes(self, sizes: list[int]) -> None:
        self.body_bytes += sum(size for size in sizes if size > 0)
        if max(sizes) > _MAX_UNSIGNED or min(sizes) < 0:
            for index, size in enumerate(sizes):
                if not 0 <= size <= _MAX_UNSIGNED:
                    self._odd_sizes[len(self._sizes) + index] = size
                    sizes[index] = 0 if size < 0 else _MAX_UNSIGNED
        self._sizes.extend(sizes)

    def _append_ids(self, rows: Sequence[Row]) -> None:
        """Keep 10 bytes of an id that a publisher of ours made, and any other one as it is."""
        accepted, tokens = self._accepted, self._tokens
        for record, row in rows:
            own = _OWN_ID(row[0])
            behind = int(own[1]) - record.time_ms if own else 0
            if own and -_MAX_SHORT <= behind <= _MAX_SHORT:
                accepted.append(behind)
                tokens.append(int(own[2], 16))
            else:
                self._odd_ids[len(tokens)] = row[0][:_NAME_CHARACTERS]
                accepted.append(0)
                tokens.append(0)

    def _append_few(self, rows: Sequence[Row]) -> None:
        """Keep the ranges and targets of the few that have some."""
        for index, (_, row) in enumerate(rows, len(self._offsets)):
            if row[6] is not None:
                first, end = (bound[:MAX_PATH_BYTES] for bound in row[6])
                self._ranges[index] = first, end
                self._aside_characters += len(first) + len(end)
            if row[7]:
                self._targets[index] = row[7]
                self._aside_characters += sum(20 + len(name) for name in row[7])

    def seal(self) -> None:
        """Give back the room that was kept for growth."""
        for name in ("_offsets", "_times", "_accepted", "_sizes", "_tokens", "_path_ends"):
            setattr(self, name, getattr(self, name)[:])  # a copy is as long as it must be
        self._actions, self._users = bytearray(self._actions), bytearray(self._users)
        self._paths = bytes(self._paths)

    def index_of(self, offset: int) -> int:
        """Return how many entries lie below `offset`."""
        if offset > self.last:
            return len(self._offsets)
        return bisect_left(self._offsets, max(0, offset - self.first))

    def body_bytes_below(self, index: int) -> int:
        """Return the bytes of the bodies of the first `index` entries."""
        beyond = sum(
            max(0, size) - self._sizes[at] for at, size in self._odd_sizes.items() if at < index
        )
        return sum(self._sizes[:index]) + beyond

    def matching(self, wanted: EntryFilter, first: int, limit: int) -> Sequence[int]:
        """Return where the first `limit` entries are that match, from index `first` on."""
        if wanted.path_prefix is not None:
            return self._below_path(wanted, first, limit)
        if wanted.action is not None:
            return self._of_action(ACTION_NUMBERS[wanted.action], first, limit)
        return range(first, min(len(self), first + limit))

    def _of_action(self, code: int, first: int, limit: int) -> list[int]:
        found: list[int] = []
        index = self._actions.find(code, first)
        while index >= 0 and len(found) < limit:
            found.append(index)
            index = self._actions.find(code, index + 1)
        return found

    def _below_path(self, wanted: EntryFilter, first: int, limit: int) -> list[int]:
        prefix = (wanted.path_prefix or "").encode()
        code = None if wanted.action is None else ACTION_NUMBERS[wanted.action]
        found: list[int] = []
        start = self._paths.find(prefix, self._path_ends[first - 1] if first else 0)
        while start >= 0 and len(found) < limit:
            following = start + 1
            if self._is_below(prefix, start):
                index = bisect_right(self._path_ends, start)
                following = self._path_ends[index]
                if code is None or self._actions[index] == code:
                    found.append(index)
            start = self._paths.find(prefix, following)
        return found

    def _is_below(self, prefix: bytes, start: int) -> bool:
        """Return whether a path begins here, and the prefix ends with a segment of it (R29)."""
        if start and self._paths[start - 1 : start] not in _BEFORE_PATH:
            return False
        end = start + len(prefix)
        return prefix == b"/" or self._paths[end : end + 1] in _BEHIND_SEGMENT

    def entry(self, index: int) -> QueueEntry:
        """Return one entry."""
        paths, deep_paths = self._split(index)
        first, end = self._ranges.get(index, ("", ""))
        return QueueEntry(
            offset=self.offset(index),
            time_ms=self._base_ms + self._times[index],
            package_id=self.package_id(index),
            action=_ACTIONS.get(self._actions[index]),
            size=self._odd_sizes.get(index, self._sizes[index]),
            user=list(self._user_numbers)[self._users[index]],
            paths=paths,
            deep_paths=deep_paths,
            range_from=first,
            range_to=end,
            targets=self._targets.get(index, ()),
        )

    def package_id(self, index: int) -> str:
        """Return the id of one entry's package."""
        known = self._odd_ids.get(index)
        if known is not None:
            return known
        accepted_ms = self._base_ms + self._times[index] + self._accepted[index]
        return f"dstrpck-{accepted_ms}-{self._tokens[index]:016x}"

    def offset(self, index: int) -> int:
        """Return the offset of one entry."""
        return self.first + self._offsets[index]

    def _split(self, index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        start = self._path_ends[index - 1] if index else 0
        text = bytes(self._paths[start : self._path_ends[index]]).decode("utf-8", "replace")
        shallow, _, deep = text.partition(_DEEP)
        return _parts(shallow), _parts(deep)


def undecodable(package_id: str) -> EntryRow:
    """Return the row of a record that can't be read: it blocks, so queues show it (R14)."""
    return package_id, 0, "", _UNDECODABLE, [], [], None, ()


def _path_text(paths: list[str], deep_paths: list[str]) -> bytes:
    """Return the paths as one text; a valid path holds no control character (R29)."""
    text = _END.join(paths) + _END if paths else ""
    if deep_paths:
        text += _DEEP + _END.join(deep_paths) + _END
    if text.count(_END) != len(paths) + len(deep_paths) or text.count(_DEEP) > bool(deep_paths):
        return _path_text(_without_controls(paths), _without_controls(deep_paths))
    return text.encode("utf-8", "replace")


def _without_controls(paths: list[str]) -> list[str]:
    return [path.replace(_END, "\ufffd").replace(_DEEP, "\ufffd") for path in paths]


def _parts(text: str) -> tuple[str, ...]:
    return tuple(text.split(_END)[:-1])
