"""Snapshots of what a database holds, for tests of those who read them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg

from packhorse.blobs.api import BlobStore
from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.snapshots.parts import EncodedNode, write_part
from packhorse.snapshots.snapshot import (
    AppliedSequence,
    ContentSnapshot,
    Part,
    ReportedState,
    new_id,
    part_key,
)
from packhorse.snapshots.store import publish
from tests.harness.feed import AGENT, TOPICS, Feed
from tests.harness.subscriber import position_of, rows_of

DAY_MS = 24 * 3600 * 1000
_FAR_MS = 4_000_000_000_000
_FAR_OFFSET = 2**62


def a_snapshot(parts: Sequence[Part], snapshot_id: str, **fields: Any) -> ContentSnapshot:
    """Return a snapshot of these parts, of an agent and a journal that are nobody's."""
    named = {
        "id": snapshot_id,
        "made_ms": 1,
        "journal_id": "journal",
        "offset": 0,
        "package_id": "",
        "publisher_agents": (AGENT,),
        "subscriber": "",
        "nodes": sum(part.held for part in parts),
        "parts": tuple(parts),
        "sequences": (),
        **fields,
    }
    return ContentSnapshot(**named)


def encoded_nodes(nodes: Iterable[Node]) -> Iterator[EncodedNode]:
    """Return nodes as a part has them."""
    return map(EncodedNode.of, nodes)


def write_parts(
    nodes: Sequence[Node], blobs: BlobStore, snapshot_id: str, *, part_nodes: int = 10
) -> list[Part]:
    """Store nodes in parts of that many."""
    ordered = sorted(nodes, key=lambda node: node.path.encode())
    starts = range(0, len(ordered), part_nodes)
    parts = (encoded_nodes(ordered[start : start + part_nodes]) for start in starts)
    return [
        write_part(part, part_key(snapshot_id, number), blobs) for number, part in enumerate(parts)
    ]


def snapshot_of(
    url: str, feed: Feed, agents: Sequence[str] = (AGENT,), *, part_nodes: int = 10, **fields: Any
) -> ContentSnapshot:
    """Return a published snapshot of what a subscriber's database holds at its position.

    Made for one subscriber, it says that all was heard of that one.
    """
    snapshot_id = new_id()
    with closing(psycopg.connect(url)) as connection:
        nodes = [node for node in tree.stream(connection, "/") if node.path != "/"]
    place = position_of(url, agents[0])
    reported = [
        ReportedState(agent, _FAR_OFFSET, _FAR_MS) for agent in agents if fields.get("subscriber")
    ]
    made = a_snapshot(
        write_parts(nodes, feed.blobs, snapshot_id, part_nodes=part_nodes),
        snapshot_id,
        **{
            "told": tuple(reported),
            "journal_id": feed.journal.identity(TOPICS.package),
            "offset": place.offset,
            "package_id": place.package_id,
            "publisher_agents": tuple(agents),
            "sequences": tuple(_sequences(url)),
            **fields,
        },
    )
    publish(made, feed.blobs)
    return made


def _sequences(url: str) -> Iterator[AppliedSequence]:
    for row in rows_of(
        url,
        "SELECT publisher_agent, producer, epoch, sequence, log_offset "
        "FROM bookkeeping.applied_sequence",
    ):
        yield AppliedSequence(*row)
