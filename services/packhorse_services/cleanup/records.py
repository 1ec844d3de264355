"""Records of the journal as people read them: decoded, from an offset or a time on.

Records are untrusted (R30): one that can't be decoded is shown with the reason.
"""

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, get_args

from pydantic import BaseModel, Field

from packhorse.blobs.api import BlobStore
from packhorse.content.node import Node
from packhorse.errors import PackhorseError
from packhorse.messaging.api import Bounds, Journal, Record
from packhorse.messaging.reading import read_to
from packhorse.packages.body import unpack
from packhorse.wire.codec import decode_discovery, decode_distributed, decode_status
from packhorse.wire.command_codec import decode_command, decode_command_status
from packhorse.wire.messages import (
    Command,
    CommandStatusMessage,
    DiscoveryMessage,
    PackageDistributed,
    PackageMessage,
    StatusMessage,
)
from packhorse.wire.package_codec import decode_package
from packhorse.wire.record import message_type
from packhorse_services.cleanup.keeping import NotInLog

_DEEPEST = 50
_NODES = 100
_NODES_BYTES = 1024 * 1024
"""What is shown of a package's body: a node that passes either bound is not even parsed (R30)."""

Decoder = Callable[[Mapping[str, bytes], bytes], Any]
_DECODERS: Mapping[str, Decoder] = {
    PackageMessage.__name__: decode_package,
    StatusMessage.__name__: decode_status,
    DiscoveryMessage.__name__: decode_discovery,
    CommandStatusMessage.__name__: decode_command_status,
    PackageDistributed.__name__: decode_distributed,
    **{kind.__name__: decode_command for kind in get_args(Command)},
}


class JournalRecord(BaseModel):
    """A record, decoded where it is a message of packhorse."""

    offset: int
    time: datetime | None = Field(description="When it entered the journal")
    key: str | None
    type: str = Field(description="The message that its headers promise; empty: none")
    size: int = Field(description="Bytes of its value")
    message: dict[str, Any] | None = Field(description="Null where it can't be decoded")
    nodes: list[dict[str, Any]] | None = Field(
        description=f"The first of a package's body, where bodies were asked for: up to {_NODES}, "
        "and 1 MiB"
    )
    more_nodes: bool = Field(description="Whether the body has nodes beyond these")
    wrong: str = Field(description="Why the message or its body can't be shown; else empty")


class JournalRecords(BaseModel):
    """Records of a partition in their order, and the bounds of the partition."""

    name: str
    partition: int
    partitions: int
    oldest_offset: int
    next_offset: int
    records: list[JournalRecord]


class Records:
    """Reads the journal's topics; bodies of packages come from it and from the blob store."""

    def __init__(self, journal: Journal, blobs: BlobStore) -> None:
        self._journal, self._blobs = journal, blobs

    def read(
        self, topic: str, partition: int, start: int | datetime | None, limit: int, *, bodies: bool
    ) -> JournalRecords:
        """Return up to `limit` records from an offset or a time on; from None the newest ones.

        A position that the log does not have is moved into it. Raises `JournalUnavailable`, and
        `NotInLog` for a partition that there is not.
        """
        partitions = self._journal.partitions(topic)
        if partition >= partitions:
            raise NotInLog(f"{topic} has no partition {partition}, only {partitions} from 0 on")
        bounds = self._journal.bounds(topic, partition)
        if isinstance(start, datetime):
            start = self._journal.offset_at(topic, int(start.timestamp() * 1000), partition)
        first = bounds.next - limit if start is None else start
        return JournalRecords(
            name=topic,
            partition=partition,
            partitions=partitions,
            oldest_offset=bounds.oldest,
            next_offset=bounds.next,
            records=[
                self._shown(one, bodies=bodies)
                for one in self._from(topic, partition, max(first, bounds.oldest), bounds, limit)
            ],
        )

    def _from(
        self, topic: str, partition: int, first: int, bounds: Bounds, limit: int
    ) -> list[Record]:
        if first >= bounds.next:
            return []
        found: list[Record] = []
        with self._journal.reader(topic, first, partition=partition) as reader:
            for batch in read_to(reader, bounds.next, partition=partition, max_records=limit):
                found += batch
                if len(found) >= limit:
                    break
        return found[:limit]

    def _shown(self, record: Record, *, bodies: bool) -> JournalRecord:
        kind = message_type(record.headers)
        message, nodes, more, wrong = None, None, False, record.damage
        decode = _DECODERS.get(kind)
        try:
            if decode is not None:
                decoded = decode(record.headers, record.value)
                message = plain(asdict(decoded))
                if bodies and isinstance(decoded, PackageMessage):
                    nodes, more = _first(unpack(decoded, self._blobs))
        except (PackhorseError, ValueError, RecursionError) as error:
            wrong = plain(str(error))
        return JournalRecord(
            offset=record.offset,
            time=_moment(record.time_ms),
            key=record.key,
            type=kind[:100],
            size=len(record.value),
            message=message,
            nodes=nodes,
            more_nodes=more,
            wrong=wrong or ("" if message is not None else "it is no message of packhorse"),
        )


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """Return what JSON can hold: enums by their values, digests in hex, bodies as their lengths.

    Half surrogate pairs become escapes, and what is deeper than `depth` an ellipsis.
    """
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "…"
    if isinstance(value, Mapping):
        return {plain(str(name)): plain(one, depth - 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, depth - 1) for one in value]
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 32 else f"{len(value)} bytes"
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _moment(time_ms: int) -> datetime | None:
    """Return a record's time; None for none, and for what a producer has made up."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC) if time_ms else None
    except (ValueError, OverflowError, OSError):
        return None


def _first(nodes: Iterable[Node]) -> tuple[list[dict[str, Any]], bool]:
    """Return what is shown of nodes, and whether there are more."""
    shown: list[dict[str, Any]] = []
    size = 0
    for node in nodes:
        size += node.size
        if len(shown) == _NODES or size > _NODES_BYTES:
            return shown, True
        shown.append(_node(node))
    return shown, False


def _node(node: Node) -> dict[str, Any]:
    binaries = {one.name: plain(asdict(one)) for one in node.binaries}
    properties = plain(json.loads(node.properties))
    return {"path": node.path, "type": node.type, "properties": properties, "binaries": binaries}
