"""An author with a subtree of odd shapes, and what a bulk distribution of it leads to elsewhere."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing

import pyarrow as pa

from packhorse.blobs.api import BlobStore, package_key
from packhorse.content import tree
from packhorse.content.node import Binary, Node
from packhorse.db.connect import connect
from packhorse.packages.apply import apply
from packhorse.packages.body import pack
from packhorse.packages.build import export
from packhorse.packages.limits import PACKAGE_TYPE, PART_TYPE
from packhorse.wire.messages import Action, PackageBody, PackageEntry, PackageMessage
from packhorse_services.pipeline.bulk.state import StoredPart

TOP = "/content/huge"
_QUIRKS = ("it's", 'a "quote"', "back\\slash", "100%", "a_b", "?", "$1", "{fn now()}", "--", ";")
_UNICODE = ("é", "\u0065\u0301", "日本", "\U0001f40e", "ﬀ", "ß")


def odd_nodes(flat: int = 400) -> Iterator[Node]:
    """Yield a subtree at `TOP` in no order, and its neighbours that sort around it."""
    for name in ("huge", "huge-2", "huge 2", "huge.d", "huge0", "hug", "huge\U0001f40e"):
        yield Node(f"/content/{name}", "page", f'{{"name": "{name}"}}')
        yield Node(f"/content/{name}/inside", "page")
    chain = TOP
    for depth in range(60):
        chain += f"/d{depth}"
        yield Node(chain, "folder", f'{{"depth": {depth}}}')
    for name in (*_QUIRKS, *_UNICODE):
        yield Node(f"{TOP}/odd/{name}", "page")
        yield Node(f"{TOP}/odd/{name}-2", "page", '{"text": "line\\nbreak \\ud83d\\udc0e"}')
        yield Node(f"{TOP}/odd/{name}/below", "page")
    for number in range(flat):
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        image = Binary("image", digest, number, "image/png")
        text = f'{{"number": {number}, "text": "{digest * (number % 5)}"}}'
        yield Node(f"{TOP}/flat/{number}", "page", text, (image,) if number % 3 == 0 else ())


def written(database_url: str, nodes: Iterable[Node]) -> None:
    """Write nodes as somebody who edits, and let the author be one that a publisher works for."""
    with closing(connect(database_url, "tests")) as connection:
        tree.upsert(connection, list(nodes))
        connection.execute("INSERT INTO bookkeeping.slot DEFAULT VALUES ON CONFLICT DO NOTHING")
        connection.commit()


def message_of(part: StoredPart) -> PackageMessage:
    """Return the package that a publisher makes of a stored part."""
    entry = PackageEntry(
        part.package_id,
        "main",
        Action.ADD,
        deep_paths=(part.deep_path,),
        body_length=part.body_length,
        node_count=part.node_count,
        range_from=part.range_from,
        range_to=part.range_to,
    )
    body = PackageBody(
        bytes.fromhex(part.body_sha256), part.content_length, reference=package_key(part.package_id)
    )
    kind = PART_TYPE if part.range_from or part.range_to else PACKAGE_TYPE
    return PackageMessage(entry, body, package_type=kind)


def imported(database_url: str, packages: Iterable[PackageMessage], blobs: BlobStore) -> str:
    """Apply the packages one by one, and return the hash of all content."""
    with closing(connect(database_url, "tests")) as connection:
        for package in packages:
            apply(connection, [package], blobs)
            connection.commit()
        return tree.content_hash(connection)


def plain_package(database_url: str, blobs: BlobStore) -> PackageMessage:
    """Return the package of a plain deep distribute of `TOP`."""
    with closing(connect(database_url, "tests")) as connection:
        packed = pack(export(connection, Action.ADD, (), (TOP,)), "dstrpck-1-00ff", blobs)
    entry = PackageEntry(
        "dstrpck-1-00ff", "main", Action.ADD, deep_paths=(TOP,), body_length=packed.length
    )
    return PackageMessage(entry, packed.body)


def state_table(deep_path: str, parts: int, snapshot_ms: int = 1) -> pa.Table:
    """Return the state of a bulk distribution whose packages nobody has stored."""
    rows = [
        {
            "part": number,
            "deep_path": deep_path,
            "range_from": f"{deep_path}/{number}" if number else "",
            "range_to": f"{deep_path}/{number + 1}" if number + 1 < parts else "",
            "package_id": f"package-{number}",
            "body_sha256": "ab" * 32,
            "body_length": 100 + number,
            "content_length": 200 + number,
            "node_count": 10,
            "part_count": parts,
            "seen_epoch": 1,
            "seen_sequence": 7,
            "snapshot_ms": snapshot_ms,
        }
        for number in range(parts)
    ]
    return pa.Table.from_pylist(rows)
