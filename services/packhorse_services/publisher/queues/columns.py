"""Metadata of many packages in columns: 30 bytes an entry and the bytes of its paths (R17).

Objects would cost thirty times as much. A segment holds consecutive packages of one publisher
agent; its numbers are relative to its first entry, and the few that don't fit go aside.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from packhorse.messaging.api import Record
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import EntryRow
from packhorse_services.publisher.queues.filters import DEEP, PATH_END, EntryFilter

_ENTRIES = 4096
_PATH_BYTES = 1024 * 1024
_USERS = 255
_MAX_SHORT = 2**15 - 1
_MAX_SIGNED = 2**31 - 1
_MAX_UNSIGNED = 2**32 - 1
_ID_CHARACTERS = 200
_ACTIONS: tuple[Action | None, ...] = (*Action, None)
_CODES = {action: code for code, action in enumerate(_ACTIONS)}
_OWN_ID = re.compile(r"dstrpck-([1-9][0-9]{0,14})-([0-9a-f]{16})")
_END, _DEEP = PATH_END.decode(), DEEP.decode()


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


class Segment:
    """Up to 4,096 entries in offset order; appended by one thread, sealed when full."""

    __slots__ = (
        *("first", "last", "body_bytes", "_base_ms", "_offsets", "_times", "_accepted", "_sizes"),
        *("_tokens", "_path_ends", "_actions", "_users", "_paths", "_user_names", "_odd_ids"),
        "_odd_sizes",
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
        self._user_names: list[str] = []
        self._odd_ids: dict[int, str] = {}
        self._odd_sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size(self) -> int:
        """Bytes of the columns, about."""
        columns = (self._offsets, self._times, self._accepted, self._sizes, self._tokens)
        numbers = sum(column.itemsize * len(column) for column in (*columns, self._path_ends))
        aside = 150 * (len(self._odd_ids) + len(self._odd_sizes))
        return numbers + 2 * len(self._actions) + len(self._paths) + aside

    def takes(self, record: Record) -> bool:
        """Tell whether there is room for one more."""
        return (
            len(self._offsets) < _ENTRIES
            and record.offset - self.first <= _MAX_UNSIGNED
            and -_MAX_SIGNED <= record.time_ms - self._base_ms <= _MAX_SIGNED
            and len(self._paths) < _PATH_BYTES
            and len(self._user_names) < _USERS
        )

    def add(self, record: Record, row: EntryRow) -> None:
        """Append an entry."""
        package_id, size, user, action, paths, deep_paths = row
        self._add(record, package_id, size, user, _CODES[action])
        text = _joined(paths)
        if deep_paths:
            text += _DEEP + _joined(deep_paths)
        self._paths += text.encode("utf-8", "replace")
        self._close_entry(record)

    def add_undecodable(self, record: Record, package_id: str) -> None:
        """Append an entry for a record that can't be read: it blocks, so queues show it (R14)."""
        self._add(record, package_id, 0, "", _CODES[None])
        self._close_entry(record)

    def _add(self, record: Record, package_id: str, size: int, user: str, action: int) -> None:
        self._add_id(record.time_ms, package_id)
        if not 0 <= size <= _MAX_UNSIGNED:
            self._odd_sizes[len(self._offsets)] = size
            size = 0 if size < 0 else _MAX_UNSIGNED
        self._times.append(record.time_ms - self._base_ms)
        self._sizes.append(size)
        self._actions.append(action)
        try:
            self._users.append(self._user_names.index(user))
        except ValueError:
            self._users.append(len(self._user_names))
            self._user_names.append(user)

    def _add_id(self, time_ms: int, package_id: str) -> None:
        """Keep 10 bytes of an id that a publisher of ours made, and any other one as it is."""
        own = _OWN_ID.fullmatch(package_id)
        accepted, token = 0, 0
        if own is not None:
            accepted, token = int(own[1]) - time_ms, int(own[2], 16)
        if own is None or not -_MAX_SHORT <= accepted <= _MAX_SHORT:
            self._odd_ids[len(self._offsets)] = package_id[:_ID_CHARACTERS]
            accepted = 0
        self._accepted.append(accepted)
        self._tokens.append(token)

    def _close_entry(self, record: Record) -> None:
        """Make the entry count; its offset comes last."""
        self._path_ends.append(len(self._paths))
        index = len(self._offsets)
        self.body_bytes += max(0, self._odd_sizes.get(index, self._sizes[index]))
        self._offsets.append(record.offset - self.first)
        self.last = record.offset

    def seal(self) -> None:
        """Give back the room that was kept for growth."""
        for name in ("_offsets", "_times", "_accepted", "_sizes", "_tokens", "_path_ends"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, column.tobytes()))
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
            return self._of_action(_CODES[wanted.action], first, limit)
        return range(first, min(len(self), first + limit))

    def _of_action(self, code: int, first: int, limit: int) -> list[int]:
        found: list[int] = []
        index = self._actions.find(code, first)
        while index >= 0 and len(found) < limit:
            found.append(index)
            index = self._actions.find(code, index + 1)
        return found

    def _below_path(self, wanted: EntryFilter, first: int, limit: int) -> list[int]:
        pattern = wanted.pattern
        code = None if wanted.action is None else _CODES[wanted.action]
        found: list[int] = []
        start = self._path_ends[first - 1] if first else 0
        while pattern is not None and len(found) < limit:
            match = pattern.search(self._paths, start)
            if match is None:
                break
            index = bisect_right(self._path_ends, match.start())
            if code is None or self._actions[index] == code:
                found.append(index)
            start = self._path_ends[index]
        return found

    def entry(self, index: int) -> QueueEntry:
        """Return one entry."""
        time_ms = self._base_ms + self._times[index]
        package_id = self._odd_ids.get(index)
        if package_id is None:
            package_id = f"dstrpck-{time_ms + self._accepted[index]}-{self._tokens[index]:016x}"
        paths, deep_paths = self._split(index)
        return QueueEntry(
            offset=self.first + self._offsets[index],
            time_ms=time_ms,
            package_id=package_id,
            action=_ACTIONS[self._actions[index]],
            size=self._odd_sizes.get(index, self._sizes[index]),
            user=self._user_names[self._users[index]],
            paths=paths,
            deep_paths=deep_paths,
        )

    def _split(self, index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        start = self._path_ends[index - 1] if index else 0
        text = bytes(self._paths[start : self._path_ends[index]]).decode("utf-8", "replace")
        shallow, _, deep = text.partition(_DEEP)
        return _parts(shallow), _parts(deep)


def _joined(paths: list[str]) -> str:
    """Return the paths as one text; a valid path holds no control character (R29)."""
    if not paths:
        return ""
    text = _END.join(paths)
    if _DEEP in text or text.count(_END) >= len(paths):
        text = _END.join(path.replace(_END, "\ufffd").replace(_DEEP, "\ufffd") for path in paths)
    return text + _END


def _parts(text: str) -> tuple[str, ...]:
    return tuple(text.split(_END)[:-1])
