"""A huge export delays only its own producer, whose requests keep their order (R5; ADR 0012)."""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from packhorse.blobs.api import BlobStore
from packhorse.clock import SystemClock
from packhorse.content.node import Node
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.request_intake import RequestIntake
from tests.harness.exporters import running
from tests.harness.memory_author import memory_author
from tests.harness.noise import noise
from tests.harness.producers import Source
from tests.harness.publishing import AGENT, Author, page, request

WAIT_S = 120.0


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    """An author with a node that is too large to be exported under the lock."""
    huge = json.dumps({"noise": noise()})
    nodes = page("/bulk"), Node("/bulk/huge", "page", huge), page("/p")
    with memory_author(database_url, tmp_path, *nodes) as author:
        yield author


class SlowBlobs:
    """A blob store whose writes take until the test lets them end."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self.requested, self.may_end = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let writes end with the block at the latest: a test that fails leaves none waiting."""
        try:
            yield
        finally:
            self.may_end.set()

    def put(self, key: str, chunks: Iterable[bytes]) -> Any:
        self.requested.set()
        assert self.may_end.wait(5 * WAIT_S)
        return self._blobs.put(key, chunks)


@pytest.mark.parametrize("agent", [AGENT, "other"])
def test_a_huge_export_delays_no_urgent_request(author: Author, agent: str) -> None:
    slow = SlowBlobs(author.blobs)
    packer = Packer(cast(BlobStore, slow), AGENT, "instance", SystemClock())
    both = [
        RequestIntake(author.replica(), SystemClock(), early=author.early(packer=packer)),
        RequestIntake(author.replica(agent=agent), SystemClock()),
    ]
    with running(both) as exporters, slow.held():
        huge = exporters[0].submit(request(deep=["/bulk"]))
        assert slow.requested.wait(WAIT_S)
        urgent = exporters[0 if agent == AGENT else 1]
        offsets = [urgent.submit(request("/p")).future.result(WAIT_S).offset for _ in range(3)]
        assert offsets == [0, 1, 2]
        assert not huge.future.done()
        slow.may_end.set()
        assert huge.future.result(WAIT_S).offset == 3


def test_r5_a_huge_export_delays_no_producer_but_its_own(author: Author) -> None:
    slow = SlowBlobs(author.blobs)
    packer = Packer(cast(BlobStore, slow), AGENT, "instance", SystemClock())
    quick, large = Source(author, "quick"), Source(author, "large")
    for source in (quick, large):
        source.register()
    intake = RequestIntake(
        author.replica(),
        SystemClock(),
        early=author.early(packer=packer),
        of_producers=author.early(packer=packer),
    )
    with running([intake]), slow.held():
        huge = intake.submit(replace(large.request(1, "/p"), deep_paths=("/bulk",)))
        assert slow.requested.wait(WAIT_S)
        behind = intake.submit(large.request(2, "/p"))
        for sequence in (1, 2):
            requested = intake.submit(quick.request(sequence, "/p"))
            assert requested.future.result(WAIT_S).offset == sequence - 1
        assert not huge.future.done()
        assert not behind.future.done()
        slow.may_end.set()
        assert [one.future.result(WAIT_S).offset for one in (huge, behind)] == [2, 3]
        assert intake.submit(large.request(3, "/p")).future.result(WAIT_S).offset == 4
    assert large.journaled() == [1, 2, 3]


def test_r5_a_large_request_of_a_producer_does_not_overtake_its_small_ones(author: Author) -> None:
    slow = SlowBlobs(author.blobs)
    packer = Packer(cast(BlobStore, slow), AGENT, "instance", SystemClock())
    source = Source(author)
    source.register()
    intake = RequestIntake(
        author.replica(),
        SystemClock(),
        early=author.early(),
        of_producers=author.early(packer=packer),
    )
    small = [replace(source.request(1, "/p"), paths=("/bulk/huge",)), source.request(2, "/p")]
    with running([intake]), slow.held():
        first, second = map(intake.submit, small)
        assert slow.requested.wait(WAIT_S)
        deep = intake.submit(replace(source.request(3, "/p"), deep_paths=("/p",)))
        slow.may_end.set()
        assert [one.future.result(WAIT_S).offset for one in (first, second, deep)] == [0, 1, 2]
    assert source.journaled() == [1, 2, 3]
