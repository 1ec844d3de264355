"""An archive, and the blob store of author and subscribers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.snapshots.parts import read_part
from packhorse.snapshots.snapshot import ContentSnapshot, is_part
from packhorse_services.pipeline.snapshot.task import (
    Made,
    SnapshotRequest,
    make_snapshot,
)
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import TOPICS
from tests.harness.fold import Content, plain
from tests.harness.history import History, archive


@dataclass
class Site:
    """An archive, and the blob store of author and subscribers."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        self.location = Location.parse(str(self.folder / "tables"))
        self.blobs_url = str(self.folder / "blobs")
        self.blobs: BlobStore = open_blobs(self.blobs_url)
        self.history = History(open_blobs(self.location.blobs_url(tables.BODIES)), producer="p")

    def archive(self) -> None:
        """Archive what the history has and the archive has not."""
        archive(self.location, self.history.records[self.archived :])
        self.archived = len(self.history.records)

    archived: int = 0

    def make(self, **request: Any) -> Made:
        wanted = SnapshotRequest(**request)
        return make_snapshot(self.spark, self.location, TOPICS.package, self.blobs_url, wanted)

    def content_of(self, snapshot: ContentSnapshot) -> Content:
        nodes: list[Node] = []
        for part in snapshot.parts:
            nodes += read_part(part, self.blobs)
        paths = [node.path for node in nodes]
        assert paths == sorted(set(paths))
        return {node.path: plain(node) for node in nodes}

    def parts(self) -> list[str]:
        return [one.key for one in self.blobs.list("snapshots/") if is_part(one.key)]
