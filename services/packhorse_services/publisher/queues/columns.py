"""Metadata of many packages in columns: 30 bytes an entry and the bytes of its paths (R17).

Objects would cost ten times as much. A segment holds consecutive packages of one publisher
agent; its numbers are relative to its first entry, and the few that don't fit go aside.
"""

import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass

from packhorse.messaging.api import Record
from packhorse.wire.messages import Action, PackageEntry
from packhorse.wire.package_codec import AGENT_HEADER, PACKAGE_ID_HEADER, decode_entry
from packhorse.wire.record import Undecodable

_ENTRIES = 4096
_PATH_BYTES = 16 * 1024 * 1024
_USERS = 255
_MAX_SIGNED = 2**31 - 1
_MAX_UNSIGNED = 2**32 - 1
_ID_CHARACTERS = 200
_ACTIONS: tuple[Action | None, ...] = (*Action, None)
_CODES = {action: code for code, action in enumerate(_ACTIONS)}
_OWN_ID = re.compile(r"dstrpck-([1-9][0-9]{0,14})-([0-9a-f]{16})")


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

    def __init__(self, first: Record) -> None:
        self.first = self.last = first.offset
        self._base_ms = first.time_ms
        self._offsets = array("I")
        self._times = array("i")
        self._accepted = array("i")
        self._sizes = array("I")
        self._tokens = array("Q")
        self._path_ends = array("I")
        self._actions = bytearray()
        self._users = bytearray()
        self._paths: bytearray | bytes = bytearray()
        self._user_names: list[str] = []
        self._odd_ids: dict[int, str] = {}
        self._odd_sizes: dict[int, int] = {}
        self.body_bytes = 0
        """Bytes of the bodies of all entries here."""

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
            and abs(record.time_ms - self._base_ms) <= _MAX_SIGNED
            and len(self._paths) < _PATH_BYTES
            and len(self._user_names) < _USERS
        )

    def add(self, record: Record, entry: PackageEntry | None) -> None:
        """Append an entry; None when the record can't be read, which the queue shows (R14)."""
        if entry is None:
            raw_id = record.headers.get(PACKAGE_ID_HEADER, b"")
            package_id = raw_id.decode("utf-8", "replace")[:_ID_CHARACTERS]
            self._add_id(record, package_id)
            self._add_rest(record, PackageEntry(package_id, "", Action.TEST), _CODES[None])
        else:
            self._add_id(record, entry.package_id[:_ID_CHARACTERS])
            self._add_rest(record, entry, _CODES[entry.action])
        self._offsets.append(record.offset - self.first)
        self.last = record.offset

    def _add_id(self, record: Record, package_id: str) -> None:
        """Keep 12 bytes of an id that a publisher of ours made, and any other one as it is."""
        own = _OWN_ID.fullmatch(package_id)
        accepted = int(own[1]) - record.time_ms if own else 0
        if own is None or abs(accepted) > _MAX_SIGNED:
            self._odd_ids[len(self._offsets)] = package_id
        self._accepted.append(max(-_MAX_SIGNED, min(accepted, _MAX_SIGNED)))
        self._tokens.append(int(own[2], 16) if own else 0)

    def _add_rest(self, record: Record, entry: PackageEntry, action: int) -> None:
        if not 0 <= entry.body_length <= _MAX_UNSIGNED:
            self._odd_sizes[len(self._offsets)] = entry.body_length
        self._times.append(record.time_ms - self._base_ms)
        self._sizes.append(max(0, min(entry.body_length, _MAX_UNSIGNED)))
        self.body_bytes += max(0, entry.body_length)
        self._actions.append(action)
        self._users.append(self._user_number(entry.user))
        self._paths += _joined(entry)
        self._path_ends.append(len(self._paths))

    def _user_number(self, user: str) -> int:
        try:
            return self._user_names.index(user)
        except ValueError:
            self._user_names.append(user)
            return len(self._user_names) - 1

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
        shallow, _, deep = text.partition("\1")
        return _parts(shallow), _parts(deep)


def _joined(entry: PackageEntry) -> bytes:
    """Return the paths as one text; a path never holds a control character (R29)."""
    text = "".join(_clean(path) + "\0" for path in entry.paths)
    if entry.deep_paths:
        text += "\1" + "".join(_clean(path) + "\0" for path in entry.deep_paths)
    return text.encode("utf-8", "replace")


def _clean(path: str) -> str:
    return path.replace("\0", "\ufffd").replace("\1", "\ufffd")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(text.split("\0")[:-1])


def add_record(segments: list[Segment], record: Record, agent: bytes) -> None:
    """Append `record` to the last segment or a new one, unless no queue of `agent` shows it.

    Other agents' packages and TEST packages are in no queue.
    """
    if record.headers.get(AGENT_HEADER) != agent:
        return
    try:
        entry = decode_entry(record.headers)
    except Undecodable:
        entry = None
    if entry is not None and entry.action is Action.TEST:
        return
    if not segments or not segments[-1].takes(record):
        if segments:
            segments[-1].seal()
        segments.append(Segment(record))
    segments[-1].add(record, entry)
