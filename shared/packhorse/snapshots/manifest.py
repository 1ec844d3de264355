"""A snapshot to the JSON of its manifest and back; what is read is untrusted (R30)."""

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from packhorse.packages.limits import LIMITS
from packhorse.runtime.reasons import reason_of
from packhorse.snapshots.snapshot import ContentSnapshot, InvalidSnapshot, Part, part_key
from packhorse.wire.package_codec import is_producer

MAX_MANIFEST_BYTES = 32 * 1024**2


@validated(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
@dataclass(frozen=True)
class _Manifest:
    format: Literal[1]
    snapshot: ContentSnapshot


_MANIFEST = TypeAdapter(_Manifest)


def encode(snapshot: ContentSnapshot) -> bytes:
    """Return the manifest. Raises `InvalidSnapshot` for one that nobody would read."""
    data: bytes = _MANIFEST.dump_json(_Manifest(1, snapshot), warnings=False)
    if len(data) > MAX_MANIFEST_BYTES:
        raise InvalidSnapshot(f"the manifest has {len(data)} bytes, not {MAX_MANIFEST_BYTES}")
    if decode(data) != snapshot:
        raise InvalidSnapshot("the snapshot does not survive its manifest")
    return data


def decode(data: bytes) -> ContentSnapshot:
    """Return the snapshot of a manifest of at most `MAX_MANIFEST_BYTES`.

    Raises `InvalidSnapshot` for another format, for fields that are missing, unknown or out of
    bounds, for parts of another snapshot, and for sums that are wrong.
    """
    try:
        snapshot = _MANIFEST.validate_json(data).snapshot
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        reason = reason_of(str(first["msg"]))
        raise InvalidSnapshot(f"{where[:200] or 'the manifest'}: {reason}") from None
    _check_parts(snapshot)
    if not all(is_producer(applied.producer) for applied in snapshot.sequences):
        raise InvalidSnapshot("a producer is none")
    return snapshot


def _check_parts(snapshot: ContentSnapshot) -> None:
    """Raise `InvalidSnapshot` unless all parts are this snapshot's own, each once."""
    numbers = [_number(part) for part in snapshot.parts]
    own = [part_key(snapshot.id, number) for number in numbers]
    if own != [part.key for part in snapshot.parts] or numbers != sorted(set(numbers)):
        raise InvalidSnapshot("the parts are not the snapshot's own, in their order")
    if snapshot.nodes != sum(part.nodes for part in snapshot.parts):
        raise InvalidSnapshot("the parts together have not the nodes that the snapshot has")
    for part in snapshot.parts:
        if part.content_length > LIMITS.content_bytes or part.nodes > LIMITS.nodes:
            raise InvalidSnapshot(f"{part.key} is larger than a part may be")


def _number(part: Part) -> int:
    digits = part.key[-5:]
    return int(digits) if digits.isascii() and digits.isdecimal() else -1
