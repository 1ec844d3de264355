"""What a snapshot is, and the keys under which its files lie in the blob store.

Files `snapshots/<2 hex>/<id>-<5 digits>` hold the nodes of a part, or what has changed in it since
it was stored; the manifest, written last, makes them a snapshot:
`snapshots/00/manifest-<offset, 20 digits>-<id>`. What the pipeline knows of a file's nodes lies
under `snapshots/<2 hex>/nodes-<the file's sha256>`: who loads a snapshot has no need of it. An id
can't begin as a manifest or such a list does.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from packhorse.errors import Permanent

MAX_PARTS = 100_000

MANIFESTS = "snapshots/00/manifest-"
"""What the key of every manifest begins with, and no part's."""

_LIST = "nodes-"
_ID = re.compile(r"[0-9a-f]{16,64}")
_PART = re.compile(r"snapshots/[0-9a-f]{2}/[0-9a-f]{16,64}-[0-9]{5}")
_SHARDS = 256
_MOST = 2**63 - 1

Count = Annotated[int, Field(ge=0, le=_MOST)]
SnapshotId = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Agent = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{0,200}$")]


class InvalidSnapshot(Permanent):
    """What is to be a snapshot is none: an id, a number, a text or their sums are wrong."""


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of a part, as stored (`length`, `sha256`) and unpacked."""

    key: Annotated[str, Field(max_length=200)]
    sha256: _Digest
    """64 lower-case hex digits, of the stored bytes."""
    length: Count
    content_length: Count


@dataclass(frozen=True, slots=True)
class PartChanges(PartFile):
    """One file of what has changed in a part: nodes, and paths that have none any more."""

    entries: Count
    """How many nodes and paths are in the file."""
    nodes: Count
    """How many nodes the part has with these changes."""
    since_ms: Count
    """When the first of them were stored, by the blob store's clock."""


@dataclass(frozen=True, slots=True)
class Part(PartFile):
    """One file of nodes in path order."""

    nodes: Count
    """How many are in the file."""
    changes: PartChanges | None = None
    """What has changed since it was stored; the next changes come in place of these."""

    @property
    def held(self) -> int:
        """How many nodes it has with its changes."""
        return self.nodes if self.changes is None else self.changes.nodes

    @property
    def files(self) -> tuple[PartFile, ...]:
        """What is stored of it."""
        return (self,) if self.changes is None else (self, self.changes)


@dataclass(frozen=True, slots=True)
class AppliedSequence:
    """The highest (epoch, sequence) of a producer up to the snapshot's offset, and where (R27)."""

    publisher_agent: _Agent
    producer: Annotated[str, Field(min_length=1, max_length=200)]
    epoch: Count
    sequence: Count
    log_offset: Count


@dataclass(frozen=True, slots=True)
class ReportedState:
    """What was known of a subscription when the snapshot was made."""

    publisher_agent: _Agent
    up_to: Annotated[int, Field(ge=-1, le=_MOST)]
    """The subscriber has decided every package up to there, and each decision was heard."""
    removed_ms: Count
    """When it decided the last removal that was heard, by its own clock; 0: none was."""


@dataclass(frozen=True, slots=True)
class ContentSnapshot:
    """The content that a subscriber of these agents must have at `offset`, as files (R8).

    Parts are in path order and no path is in two of them. They may be another snapshot's, too.
    """

    id: SnapshotId
    made_ms: Count
    journal_id: Annotated[_Text, Field(min_length=1)]
    offset: Count
    package_id: _Text
    """Of the record at `offset` (R24); empty when that is no package."""
    publisher_agents: Annotated[tuple[_Agent, ...], Field(min_length=1, max_length=1_000)]
    subscriber: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$")]
    """Whose removed packages are left out; empty: nobody's, it is for everybody."""
    nodes: Count
    parts: Annotated[tuple[Part, ...], Field(max_length=MAX_PARTS)]
    sequences: tuple[AppliedSequence, ...]
    told: Annotated[tuple[ReportedState, ...], Field(max_length=1_000)] = ()
    """Of each agent; nothing when it is for everybody."""
    left_out: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Which packages up to `offset` are not in it, as `left_out` says; empty: all are."""


def left_out(offsets: Iterable[int]) -> str:
    """Return 64 hex digits that stand for a set of offsets; nothing for none."""
    listed = ",".join(map(str, sorted(set(offsets))))
    return hashlib.sha256(listed.encode()).hexdigest() if listed else ""


def new_id() -> str:
    """Return a random id; a task that must be able to begin again keeps it, or derives its own."""
    return secrets.token_hex(16)


def part_key(snapshot_id: str, part: int) -> str:
    """Return the key of a file of part number `part`, from 0. Raises `InvalidSnapshot`."""
    _check_id(snapshot_id)
    if not 0 <= part < MAX_PARTS:
        raise InvalidSnapshot(f"a snapshot has no part {part}; numbers are 0 to {MAX_PARTS - 1}")
    return f"snapshots/{part % _SHARDS:02x}/{snapshot_id}-{part:05d}"


def node_list_key(file: PartFile) -> str:
    """Return where the list of a file's nodes lies: equal files have one."""
    return f"snapshots/{file.sha256[:2]}/{_LIST}{file.sha256}"


def is_part(key: str) -> bool:
    """Return whether a key is that of a part's file, or of its changes, of whatever snapshot."""
    return _PART.fullmatch(key) is not None


def manifest_key(snapshot: ContentSnapshot) -> str:
    """Return the key of a snapshot's manifest: keys sort as the offsets do."""
    return manifest_key_of(snapshot.offset, snapshot.id)


def manifest_key_of(offset: int, snapshot_id: str) -> str:
    """Return the key of the manifest of the snapshot `snapshot_id`. Raises `InvalidSnapshot`."""
    return f"{MANIFESTS}{offset:020d}-{_check_id(snapshot_id)}"


def offset_of(manifest: str) -> int:
    """Return the offset that a manifest's key names, -1 when it names none."""
    digits = manifest.removeprefix(MANIFESTS)[:20]
    return int(digits) if digits.isdecimal() else -1


def _check_id(snapshot_id: str) -> str:
    if _ID.fullmatch(snapshot_id) is None:
        raise InvalidSnapshot(f"{snapshot_id[:80]!r} is no snapshot id: 16 to 64 lower-case hex")
    return snapshot_id
