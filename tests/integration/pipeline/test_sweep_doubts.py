"""What can't be read fails the mark; what is no package is reported, and blocks nobody."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packhorse.blobs.api import binary_key, package_key
from packhorse.errors import PackhorseError
from packhorse.packages.compression import compress
from packhorse.snapshots.snapshot import part_key
from packhorse.wire.messages import Action
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused
from packhorse_services.pipeline.sweep.report import MarkState
from packhorse_services.pipeline.sweep.scans import NodeScan, OutboxScan
from tests.harness.noise import large_node
from tests.harness.plain_report import PlainReport
from tests.harness.postgres import Databases
from tests.harness.sweep import Yard, yard_of


@pytest.fixture
def yard(databases: Databases, tmp_path: Path) -> Iterator[Yard]:
    with yard_of(databases, tmp_path / "blobs") as made:
        yield made


@pytest.mark.parametrize(
    "what", ["node", "package", "body", "later body", "lost body", "part", "outbox"]
)
def test_what_cant_be_read_fails_the_mark(yard: Yard, what: str) -> None:
    binary = yard.upload(b"x")
    yard.age()
    harm: dict[str, Any] = {
        "node": lambda: yard.author.execute(
            "INSERT INTO content.node VALUES ('/a', 'page', '{}', '{\"data\": 7}')"
        ),
        "package": lambda: yard.feed.raw(b"\xff", {"message-type": b"PackageMessage"}),
        "body": lambda: _damage(yard, _body_of_the_log(yard)),
        "later body": lambda: yard.blobs.put(package_key("dstrpck-1-ab"), [_TOO_LARGE]),
        "lost body": lambda: yard.blobs.delete(_body_of_the_log(yard)),
        "part": lambda: yard.blobs.put(part_key("0a" * 8, 1), [b"no frame"]),
        "outbox": lambda: yard.author.execute(
            "INSERT INTO bookkeeping.outbox (epoch, sequence, snapshot, package_id, entry, value) "
            "VALUES (1, 1, 1, 'p', '', '\\xff')"
        ),
    }
    harm[what]()
    report = PlainReport()
    with pytest.raises(PackhorseError):
        yard.mark(report)
    assert report.summary is not None
    assert report.summary.state is MarkState.FAILED
    assert report.summary.error
    with pytest.raises(TaskRefused, match="is not complete"):
        yard.sweep(report)
    assert yard.has(binary)


_TOO_LARGE = compress(b"\xff\xff\xff\xff\x0f")
"""It promises a node of 4 GiB, which a later build may allow."""


def _body_of_the_log(yard: Yard) -> str:
    message = yard.feed.message(Action.ADD, ["/s"], (), [large_node("/s")])
    assert message.body is not None
    assert message.body.reference is not None
    yard.feed.append(message)
    return message.body.reference


def _damage(yard: Yard, key: str) -> None:
    """Cut a stored body short, as a disk may."""
    file = yard.folder / key
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-10])


def test_what_is_no_package_is_reported_and_kept_and_blocks_nobody(yard: Yard) -> None:
    unused = yard.upload(b"unused")
    message = yard.feed.message(Action.ADD, ["/s"], (), [large_node("/s")])
    assert message.body is not None
    assert message.body.reference is not None
    _damage(yard, message.body.reference)  # it never came into the log
    strange = [package_key(f"dstrpck-{number}-ab") for number in range(2)]
    for key, content in zip(strange, (b"a note of somebody", compress(b"no node")), strict=True):
        yard.blobs.put(key, [content])
    kept = sorted([*strange, message.body.reference])
    yard.age()
    report = yard.mark()
    assert (report.summary.unreadable, sorted(report.summary.unreadable_keys)) == (3, kept)
    assert [blob.key for blob in report.candidates] == [binary_key(unused.sha256)]
    assert yard.sweep(report).binaries.count == 1
    assert sorted(blob.key for blob in yard.blobs.list("packages/")) == kept


def test_a_database_that_is_away_fails_mark_and_sweep(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.upload(b"x")
    yard.age()
    report = yard.mark()
    stores = replace(yard.stores, subscriber_urls={"sub": "postgresql://a@127.0.0.1:1/none"})
    monkeypatch.setattr(Yard, "stores", stores)
    with pytest.raises(TaskFailed, match="the database of subscriber sub can't be read"):
        yard.mark()
    with pytest.raises(TaskFailed, match="can't be read"):
        yard.sweep(report)
    assert len(yard.keys()) == 1


@pytest.mark.parametrize("scan", [NodeScan, OutboxScan])
def test_an_author_that_executors_alone_cant_reach_is_told_by_its_setting(
    yard: Yard, scan: type[NodeScan | OutboxScan]
) -> None:
    class Apart(PlainReport):
        def read(self, round_name: str, name: str, given: Any, pieces: Any) -> None:
            if isinstance(given, scan):
                given = replace(given, database_url="postgresql://a@127.0.0.1:1/none")
            super().read(round_name, name, given, pieces)

    said = "the database of the author can't be read: .*; look at PACKHORSE_DATABASE_URL, and run"
    with pytest.raises(TaskFailed, match=said):
        yard.mark(Apart())
