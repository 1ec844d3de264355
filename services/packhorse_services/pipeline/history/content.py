"""The content at a point of the history, folded from the archive and the newest usable base."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from packhorse.blobs.api import binary_key
from packhorse.blobs.open import open_blobs
from packhorse.content.node import ROOT, is_within
from packhorse.content.rows import parse_binaries
from packhorse.snapshots.snapshot import left_out
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.beginning import BaseRules, Beginning, beginning
from packhorse_services.pipeline.history.events import package_events
from packhorse_services.pipeline.history.fetching import Texts, characters_of
from packhorse_services.pipeline.history.fold import fold
from packhorse_services.pipeline.history.headers import PackageHeaders
from packhorse_services.pipeline.history.onto_base import (
    BaseNodes,
    OfBatches,
    Wanted,
    by_path,
    chosen_by,
    fold_onto,
    unchanged,
)
from packhorse_services.pipeline.history.read import (
    PackageSelection,
    counted,
    removed_by,
)
from packhorse_services.pipeline.history.target import HistoryTarget
from packhorse_services.pipeline.pieces import kept
from packhorse_services.pipeline.storage.location import Location

PARTITION_CHARACTERS = 32 * 1024**2
"""What a partition holds on average; each has about as many nodes, so one of long texts is larger.
"""

_MOST_PARTITIONS = 5_000
"""Content of more than that many times the above has larger ones."""


def partitions_for(characters: int, each: int = PARTITION_CHARACTERS) -> int:
    """Return how many partitions hold about `each` characters of so many."""
    return min(_MOST_PARTITIONS, 1 + characters // each)


def placed(winners: DataFrame, partitions: int) -> DataFrame:
    """Add `partition`, from 0: the one of at most that many that the path belongs to, in order."""
    return winners.repartitionByRange(partitions, "path").withColumn(
        "partition", f.spark_partition_id()
    )


def in_path_order(content: DataFrame, partitions: int) -> DataFrame:
    """Return content in path order, within and across the partitions that each node names."""
    return content.repartitionById(partitions, "partition").sortWithinPartitions("path")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which packages count, and which paths are wanted."""

    subscriber: str = ""
    """What it removed is left out; empty: nothing is."""
    leave_out: tuple[int, ...] = ()
    """Offsets of packages that nobody imported, and that can't be read."""
    within: str = ROOT


@dataclass(frozen=True, slots=True)
class ContentHistory:
    """What is where at a point of the history."""

    decided: DataFrame
    """The places that a fold has decided, kept."""
    texts: Texts
    touched: DataFrame | None = None
    """The nodes of a base that were decided again, kept unless they are all of it.

    None: there is no base, or nobody asks.
    """
    rest: BaseNodes | None = None
    """What else is there."""

    @property
    def winners(self) -> DataFrame:
        """All places, as `fold` gives them; each reading reads the lists of the base again."""
        return self.decided if self.rest is None else self.decided.unionByName(self.rest.places())

    @contextmanager
    def together(self) -> Iterator["ContentHistory"]:
        """Lend the same for several readings: all places are kept in one frame."""
        if self.rest is None and self.decided.is_cached:
            yield self
            return
        with kept(self.winners) as winners:
            yield ContentHistory(winners, self.texts)

    def where(self, wanted: Wanted) -> "ContentHistory":
        """Return what is at paths that are wanted."""
        own = self.decided.mapInArrow(
            lambda batches: (chosen_by([wanted], batch) for batch in batches), self.decided.schema
        )
        return ContentHistory(own, self.texts, rest=self.rest and self.rest.where(wanted))

    def within(self, top: str) -> "ContentHistory":
        """Return what is at `top` and below it."""
        return self if top == ROOT else self.where(by_path(partial(is_within, root=top)))

    def mapped(self, mapping: OfBatches, schema: StructType | str) -> DataFrame:
        """Return what `mapping` makes of all places in the tasks that read them.

        Its batches have at least path, size and hash.
        """
        own = self.decided.mapInArrow(mapping, schema)
        return own if self.rest is None else own.unionByName(self.rest.mapped(mapping, schema))

    def only(self, paths: DataFrame) -> "ContentHistory":
        """Return what is at some paths."""
        return ContentHistory(
            self.winners.join(paths.select("path"), "path", "left_semi"), self.texts
        )

    def ordered(self, characters: int = PARTITION_CHARACTERS) -> tuple[DataFrame, int]:
        """Return the nodes (`NODES`) in path order, and in how many partitions of that size.

        Texts are read and moved once; what is sorted at a time is a partition.
        """
        every = characters_of(self.winners)
        partitions = partitions_for(every, characters)
        found = self.texts.fetched(placed(self.winners, partitions), every)
        return in_path_order(found, partitions), partitions

    def unordered(self) -> DataFrame:
        """Return the nodes (`NODES`), in no order; each reading reads the archive again."""
        somewhere = self.winners.withColumn("partition", f.lit(0))
        return self.texts.fetched(somewhere, characters_of(self.winners))


@contextmanager
def content_at(
    spark: SparkSession, location: Location, blobs_url: str, target: HistoryTarget, choice: Choice
) -> Iterator[tuple[ContentHistory, Beginning]]:
    """Lend the content at `target`, kept on the workers' disks, and say where its fold began.

    Raises `TaskRefused` when the history is incomplete or holds packages that can't be read.
    """
    absent = _absent(location, target, choice)
    rules = BaseRules(subscriber=choice.subscriber, left_out=absent)
    headers = PackageHeaders(location, target.journal_id, target.version)
    with closing(open_blobs(blobs_url)) as blobs:
        begin = beginning(blobs, target, rules, headers)
    wanted = PackageSelection(
        target.journal_id,
        target.version,
        spans=dict.fromkeys(target.agents, (begin.after, target.offset)),
        numbered_after=dict.fromkeys(target.agents, begin.numbered_after),
        applied=begin.base.sequences if begin.base else (),
        absent=absent,
        subscriber=choice.subscriber,
    )
    packages = counted(location, wanted)
    with kept(package_events(spark, packages, choice.within)) as events:
        texts = Texts(packages, blobs_url, begin.base)
        with content_from(events, texts, choice.within) as content:
            yield content, replace(begin, left_out=left_out(absent))


@contextmanager
def content_from(events: DataFrame, texts: Texts, within: str = ROOT) -> Iterator[ContentHistory]:
    """Lend what the events of `texts.packages` come to, onto the base of `texts` if it has one.

    Raises as `fold` does.
    """
    with ExitStack() as stack:
        if texts.base is None:
            found = ContentHistory(fold(events), texts)
        else:
            base = BaseNodes(events.sparkSession, texts.base, texts.blobs_url, texts.based_at)
            onto = fold_onto(events, base) if texts.packages.shares() else unchanged(base)
            decided, touched, rest = stack.enter_context(onto)
            found = ContentHistory(decided, texts, touched, rest)
        found = found.within(within)
        yield replace(found, decided=stack.enter_context(kept(found.decided)))


def _absent(location: Location, target: HistoryTarget, choice: Choice) -> tuple[int, ...]:
    """Return the offsets of packages that do not count, read once; they are few."""
    offsets = {offset for offset in choice.leave_out if offset <= target.offset}
    if choice.subscriber:
        removed = removed_by(location, choice.subscriber, target.agents, target.journal_id)
        offsets.update(offset for _, offset in removed if offset <= target.offset)
    return tuple(sorted(offsets))


_REPORTED = 20
_MISSING = StructType([StructField("digest", StringType()), StructField("path", StringType())])
_LOST = to_arrow_schema(_MISSING)


def missing_binaries(content: DataFrame, blobs_url: str) -> DataFrame:
    """Return digest and path of binaries that the content refers to and the store has no more.

    Those that are there are renewed, so that no sweep takes them before the nodes are back (R22).
    """

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(open_blobs(blobs_url)) as blobs:
            for batch in batches:
                digests, paths = (column.to_pylist() for column in batch.columns)
                lost = [
                    {"digest": digest, "path": path}
                    for digest, path in zip(digests, paths, strict=True)
                    if blobs.renew(binary_key(digest)) is None
                ]
                yield pa.RecordBatch.from_pylist(lost, _LOST)

    referred = content.select("binaries", "path").mapInArrow(_digests, _MISSING)
    return referred.groupBy("digest").agg({"path": "min"}).mapInArrow(scan, _MISSING)


def require_binaries(
    content: DataFrame, blobs_url: str, *, what: str = "binaries", otherwise: str
) -> None:
    """Renew the binaries of content. Raises `TaskRefused` naming some when any are missing.

    `what` says which they are, `otherwise` what to do without putting them back.
    """
    lost = missing_binaries(content, blobs_url).limit(_REPORTED + 1).collect()
    if lost:
        named = "; ".join(f"sha256:{row.digest} of {row.path}" for row in lost[:_REPORTED])
        more = "; and more" if len(lost) > _REPORTED else ""
        raise TaskRefused(
            f"{what} are no longer in the blob store ({named}{more}); put them back, or {otherwise}"
        )


def _digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        binaries, paths = (column.to_pylist() for column in batch.columns)
        rows = [
            {"digest": binary.sha256, "path": path}
            for text, path in zip(binaries, paths, strict=True)
            for binary in parse_binaries(text)
        ]
        yield pa.RecordBatch.from_pylist(rows, _LOST)
