"""The log as a source: the packages in a range of offsets."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from packhorse.blobs.api import BlobStore, package_key
from packhorse.blobs.open import open_blobs
from packhorse.errors import PackhorseError
from packhorse.messaging.api import Reader, Record
from packhorse.messaging.open import open_journal
from packhorse.messaging.reading import LogCut, read_to
from packhorse.packages.body import unpack
from packhorse.packages.limits import PACKAGE_TYPE, PART_TYPE, TARGETED_TYPE, PackageRefused
from packhorse.wire.messages import PackageMessage
from packhorse.wire.package_codec import decode_package
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused
from packhorse_services.pipeline.sweep.work import FindingKind, Found, once, references

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class LogScan:
    """Reads the packages from one offset up to, not including, another."""

    journal_url: str
    blobs_url: str
    topic: str

    def __call__(self, piece: tuple[int, int], /) -> Iterator[Found]:
        """Yield what the packages refer to, and the stored bodies that they name."""
        with (
            closing(open_journal(self.journal_url, client_name="packhorse-mark")) as journal,
            closing(open_blobs(self.blobs_url)) as blobs,
            journal.reader(self.topic, piece[0], partition=0) as reader,
        ):
            for records in _batches(reader, piece[1]):
                yield from once(_of_records(records, piece[1], blobs))


def of_package(message: PackageMessage, blobs: BlobStore) -> Iterator[Found]:
    """Yield what a package refers to. A stored body is read where it is stored.

    Raises `PackageRefused` for a package of a type that this build does not know.
    """
    if message.package_type not in (PACKAGE_TYPE, PART_TYPE, TARGETED_TYPE):
        raise PackageRefused(f"unknown package type {message.package_type[:80]!r}")
    body = message.body
    if body is not None and body.inline is None:
        yield Found(FindingKind.NAME, package_key(message.entry.package_id))
        yield Found(FindingKind.IN_LOG, package_key(message.entry.package_id))
        return
    for node in unpack(message, blobs):
        yield from references(node.binaries)


def _of_records(records: Sequence[Record], end: int, blobs: BlobStore) -> Iterator[Found]:
    for record in records:
        if record.offset >= end:
            return
        try:
            yield from of_package(decode_package(record.headers, record.value), blobs)
        except PackhorseError as error:
            raise TaskRefused(
                f"the package at offset {record.offset} can't be read, so nobody knows what it "
                f"needs; upgrade this build, or wait until the log has forgotten it: {error}"
            ) from error


def _batches(reader: Reader, end: int) -> Iterator[Sequence[Record]]:
    try:
        yield from read_to(reader, end, patience_s=_PATIENCE_S)
    except LogCut as error:
        raise TaskFailed("the log was cut while it was read; make a new mark") from error
