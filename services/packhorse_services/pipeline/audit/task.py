"""The audit of subscribers, one after the other; what fails for one does not keep the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from packhorse.content.node import ROOT
from packhorse.errors import PackhorseError
from packhorse_services.pipeline.advice import as_typed
from packhorse_services.pipeline.audit.comparison import (
    DIFFERENT,
    EXTRA,
    MISSING,
    difference,
    differing,
    in_ranges,
    range_hashes,
    removals_of,
    within,
)
from packhorse_services.pipeline.audit.expected import Expectations, Expected
from packhorse_services.pipeline.audit.joining import notes_of
from packhorse_services.pipeline.audit.orders import judged
from packhorse_services.pipeline.audit.outcome import UNDECIDED, Audited, Finding
from packhorse_services.pipeline.audit.repository import Repository, range_starts
from packhorse_services.pipeline.audit.situation import Situation, read_situation
from packhorse_services.pipeline.failures import translated
from packhorse_services.pipeline.history.content import Content
from packhorse_services.pipeline.history.events import kept
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.repositories import export_snapshot, reading

FINDINGS = "subscriber string, path string, kind string, offset long, package_id string"
_COLUMNS = ("path", "kind", "offset", "package_id")


@dataclass(frozen=True)
class Audit:
    """One run, whose findings go to the table `audit/<run>`."""

    spark: SparkSession
    location: Location
    run: str
    expectations: Expectations
    top: str = ROOT
    limit: int = 100

    def all(self, databases: Mapping[str, str]) -> list[Audited]:
        """Audit each subscriber; the table is there afterwards, also when nothing was found."""
        with translated("audit"):
            self._save(self.spark.createDataFrame([], FINDINGS))
        return [self.one(name, url) for name, url in sorted(databases.items())]

    def one(self, subscriber: str, database_url: str) -> Audited:
        """Audit one subscriber; why it can't be done is part of the result."""
        situation = None
        try:
            with (
                translated("audit"),
                reading(database_url, f"subscriber {subscriber}") as connection,
            ):
                situation = read_situation(connection)
                starts = range_starts(connection)
                snapshot = export_snapshot(connection)
                here = Repository(database_url, f"subscriber {subscriber}", snapshot, self.top)
                expected = self.expectations.of(subscriber, situation)
                return self._compared(subscriber, situation, expected, here, starts)
        except PackhorseError as error:
            return Audited(
                subscriber, _offsets(situation), problem=as_typed(" ".join(str(error).split()))
            )

    def _compared(
        self,
        subscriber: str,
        situation: Situation,
        expected: Expected,
        here: Repository,
        starts: Sequence[str],
    ) -> Audited:
        content = Content(expected.content.winners.where(within(self.top)), expected.content.texts)
        ranged = in_ranges(_with_origins(content), starts)
        wanted, found = _rows(range_hashes(ranged)), _rows(here.hashes(self.spark, starts))
        ranges = differing(wanted, found)
        notes = [*notes_of(situation), *expected.notes]
        if not ranges:
            return Audited(subscriber, _offsets(situation), notes=notes)
        digests = here.digests(self.spark, starts, ranges)
        with (
            kept(difference(ranged, digests, ranges)) as suspected,
            kept(_confirmed(suspected, content, expected.clears, here)) as certain,
            judged(certain, expected, situation.agents, here) as findings,
        ):
            self._save(findings.withColumn("subscriber", f.lit(subscriber)))
            counts = {row["kind"]: row["count"] for row in _counted(findings)}
            shown = findings.orderBy("path").limit(self.limit).collect()
        return Audited(
            subscriber,
            _offsets(situation),
            {kind: counts.get(kind, 0) for kind in (MISSING, EXTRA, DIFFERENT, UNDECIDED)},
            [Finding(*(row[name] for name in _COLUMNS)) for row in shown],
            notes,
        )

    def _save(self, findings: DataFrame) -> None:
        columns = [column.split()[0] for column in FINDINGS.split(", ")]
        path = self.location.spark_path(f"audit/{self.run}")
        findings.select(*columns).write.format("delta").mode("append").save(path)


def _confirmed(
    suspected: DataFrame, content: Content, clears: DataFrame, here: Repository
) -> DataFrame:
    """Return the findings: without what is equal as JSON, extra paths with who should remove them.

    A package that cleared a path counts, though others may have written below it since.
    """
    unlike = suspected.where(f.col("kind") == DIFFERENT)
    really = here.confirmed(content.only(unlike).unordered())
    extra = suspected.where(f.col("kind") == EXTRA).select("path", "kind")
    extra = extra.join(removals_of(extra, clears), "path", "left")
    told = suspected.where(f.col("kind") == MISSING).unionByName(unlike.join(really, "path"))
    return told.select(*_COLUMNS).unionByName(
        extra.select(
            "path", "kind", "offset", f.coalesce("package_id", f.lit("")).alias("package_id")
        )
    )


def _counted(findings: DataFrame) -> list[Row]:
    return findings.groupBy("kind").count().collect()


def _rows(hashes: DataFrame) -> list[tuple[int, int, str]]:
    """Return range, count, sum; there are at most some thousand ranges."""
    return [(row["range"], row["count"], row["sum"]) for row in hashes.collect()]


def _offsets(situation: Situation | None) -> dict[str, int]:
    return {lane.agent: lane.offset for lane in situation.lanes} if situation else {}


def _with_origins(content: Content) -> DataFrame:
    """Return the winners; what came with a snapshot has that one's offset."""
    if content.texts.base is None:
        return content.winners
    own = f.lit(content.texts.base.offset).cast("long")
    offset = f.when(f.col("package_id") == "", own).otherwise(f.col("offset"))
    return content.winners.withColumn("offset", offset)
