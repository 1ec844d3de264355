"""A new subscriber by a snapshot against one by the history, in the same run and to the same hash.

`python -m tests.bench.joining [PACKAGES [NODES]]` prints one JSON line a measurement. The packages
rewrite the nodes in turn; the snapshot's cost goes with the nodes alone.
"""

import json
import random
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.content.tree import content_hash
from packhorse.messaging.open import open_journal
from packhorse.runtime.lifecycle import Lifecycle
from packhorse_services.subscriber.assembly import assemble
from packhorse_services.subscriber.settings import Settings
from tests.bench.reporting import emit
from tests.harness.feed import TOPICS, Feed
from tests.harness.postgres import Databases, running_postgres
from tests.harness.realistic_pages import properties
from tests.harness.snapshots import snapshot_of


def fill(feed: Feed, packages: int, nodes: int) -> int:
    """Append packages of one page each; return the last offset."""
    source = random.Random(1)
    for number in range(packages):
        page = number % nodes
        text = {**properties(source, 500), "number": number}
        last = feed.add(Node(f"/site/s{page // 1000}/p{page}", "page", json.dumps(text)))
    return last


def seconds_to(feed: Feed, url: str, last: int, **options: Any) -> float:
    """Run a whole subscriber until it is there."""
    settings = Settings(**{"database_url": url, "subscriber": "sub", **options})
    subscriber = assemble(settings, feed.journal, feed.blobs)
    began = time.monotonic()
    with Lifecycle(subscriber.components):
        while subscriber.reports[0].state.offset < last:
            time.sleep(0.01)
        return time.monotonic() - began


def hash_of(url: str) -> str:
    with closing(psycopg.connect(url)) as connection:
        return content_hash(connection)


def main(packages: int = 100_000, nodes: int = 100_000) -> None:
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        databases = Databases(server)
        journal = open_journal(f"memory://{uuid.uuid4()}", client_name="bench")
        feed = Feed(journal, open_blobs(str(Path(folder) / "blobs")), producer="author")
        last = fill(feed, packages, nodes)
        imports, loads = databases.new("imports"), databases.new("loads")
        by_history = seconds_to(feed, imports, last)
        snapshot = snapshot_of(imports, feed, part_nodes=20_000)
        journal.truncate(TOPICS.package, last + 1)
        by_snapshot = seconds_to(feed, loads, last, start="snapshot")
        assert hash_of(imports) == hash_of(loads)
    sizes = {"packages": packages, "nodes": snapshot.nodes}
    emit("by_snapshot", by_snapshot, "s", anchor=("by the history", by_history), **sizes)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
