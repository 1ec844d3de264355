"""What a bulk distribution does with one part: export it from a snapshot, store it, ask for it."""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from psycopg import IsolationLevel

from packhorse.blobs.api import package_key
from packhorse.content import tree
from packhorse.content.parts import SubtreePart
from packhorse.db.connect import connect
from packhorse.packages.body import unpack
from packhorse.packages.compression import compress
from packhorse.packages.format import write_nodes
from packhorse_services.publisher.outbox.request import DistributionRequest, PreparedBody
from packhorse_services.publisher.publish.early_export import EarlyPublishing
from packhorse_services.publisher.publish.packer import Packer
from tests.harness.producers import Source
from tests.harness.publishing import Author, page, publish, request

DEEP = "/huge"
PAGES = [f"{DEEP}/{name}" for name in "abcdef"]
FIRST, SECOND = ("", PAGES[3]), (PAGES[3], "")


def prepare(author: Author, deep: str, first: str = "", end: str = "") -> PreparedBody:
    """Export a part of a subtree as it is now, and put it into the author's blob store."""
    part = SubtreePart.between(deep, first, end)
    with closing(connect(author.database_url, "tests", autocommit=True)) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        with connection.transaction():
            seen: Any = connection.execute("SELECT epoch, sequence FROM bookkeeping.slot")
            [number] = seen.fetchall()
            nodes = [node for node in tree.stream(connection, deep) if part.holds(node.path)]
    content = b"".join(write_nodes(nodes))
    stored = compress(content)
    package_id = f"dstrpck-1700000000000-{secrets.token_hex(8)}"
    author.blobs.put(package_key(package_id), [stored])
    digest = hashlib.sha256(stored).hexdigest()
    return PreparedBody(
        package_id, digest, len(stored), len(content), len(nodes), number, first, end
    )


def requested(source: Source, sequence: int, deep: str, body: PreparedBody) -> DistributionRequest:
    """Return the request of a producer for a prepared body."""
    number = source.request(sequence).producer
    return replace(request(deep=[deep]), producer=number, prepared=body)


def document(
    body: PreparedBody, deep: str, epoch: int, sequence: int, **more: Any
) -> dict[str, Any]:
    """Return the same request as `POST /packages` takes it."""
    return {
        "deep_path": deep,
        "range_from": body.range_from,
        "range_to": body.range_to,
        "package_id": body.package_id,
        "body_sha256": body.sha256,
        "body_length": body.length,
        "content_length": body.content_length,
        "node_count": body.node_count,
        "seen": {"epoch": body.seen[0], "sequence": body.seen[1]},
        "producer": {"name": "bulk", "epoch": epoch, "sequence": sequence},
        **more,
    }


def between_look_and_lock(
    author: Author,
    monkeypatch: pytest.MonkeyPatch,
    happen: Callable[[], None],
    packer: Packer | None = None,
) -> EarlyPublishing:
    """Return a publisher at which something happens after its own look and before its lock."""
    publishing = author.replica()
    under_lock, happenings = publishing.publish, [happen]

    def publish_late(*arguments: Any) -> None:
        if happenings:
            happenings.pop()()
        under_lock(*arguments)

    monkeypatch.setattr(publishing, "publish", publish_late)
    return author.early(packer=packer, publishing=publishing)


def edit(author: Author, path: str, version: int) -> None:
    """Change a page and distribute it, at another replica."""
    author.write(page(path, version))
    publish(author.replica(), request(path))


def versions(author: Author) -> Iterator[tuple[str, str]]:
    """Yield path and properties of every node in the journal, in its order."""
    for placed in author.journaled():
        for node in unpack(placed.message, author.blobs):
            yield node.path, node.properties
