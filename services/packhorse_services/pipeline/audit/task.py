"""The audit of subscribers; what fails for one does not keep the others.

A finding that another order of the subscriptions explains is UNDECIDED: the log's order binds
within an agent alone (R10). What was imported last at a path is the last that one of the
subscriptions did there. So a path that holds what one by itself has left there may be right: no
offset says which came last.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from packhorse.content.node import ROOT
from packhorse.errors import PackhorseError
from packhorse_services.pipeline.audit.comparison import (
    DIFFERENT,
    EXTRA,
    MISSING,
    difference,
    differing,
    in_ranges,
    range_hashes,
    removals_of,
)
from packhorse_services.pipeline.audit.expected import Expectations, Expected
from packhorse_services.pipeline.audit.outcome import UNDECIDED, Audited, Finding
from packhorse_services.pipeline.audit.repository import Repository, range_starts
from packhorse_services.pipeline.audit.subscriber_state import Situation, notes_of, read_situation
from packhorse_services.pipeline.engine.databases import export_snapshot, reading
from packhorse_services.pipeline.engine.exit_codes import as_typed
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.history.content import ContentHistory
from packhorse_services.pipeline.history.decoding import CLEAR
from packhorse_services.pipeline.history.events import package_events
from packhorse_services.pipeline.history.fetching import Texts
from packhorse_services.pipeline.history.fold import MERE_FOLDER, fold
from packhorse_services.pipeline.history.onto_base import by_path
from packhorse_services.pipeline.pieces import kept
from packhorse_services.pipeline.storage import columns as c
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import commit, prepare, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import as_they_are, written

FINDINGS = t.StructType(
    [
        c.text("subscriber", "Name of the subscriber"),
        c.text("path", "Path of the node"),
        c.text("kind", "What is wrong: missing, extra, different or undecided"),
        c.column(
            "offset",
            t.LongType(),
            "Offset of the package that should have put or removed it, or of the snapshot that "
            "holds it; null when there is none",
            nullable=True,
        ),
        c.column("package_id", t.StringType(), "Id of that package; empty for none", nullable=True),
    ]
)
"""A row for each path at which a subscriber is not as it should be."""
_COLUMNS = ("path", "kind", "offset", "package_id")
_TOGETHER = 8
"""So many subscribers have a transaction open at a time, which holds back vacuum there."""


@dataclass(frozen=True)
class Audit:
    """One run, whose findings go to the table `audit/<run>`."""

    spark: SparkSession
    location: Location
    run: str
    expectations: Expectations
    top: str = ROOT
    limit: int = 100

    @property
    def _table(self) -> str:
        return f"{tables.AUDITS}/{self.run}"

    def all(self, databases: Mapping[str, str]) -> list[Audited]:
        """Audit each subscriber; the table is there afterwards, also when nothing was found.

        Of as many as are looked at together, the states are read at about one moment: so they are
        mostly at one offset and share a fold, and an archive that has one of them has all.
        """
        prepare(self.location, {self._table: FINDINGS})
        waiting, found = iter(sorted(databases.items())), []
        while some := list(islice(waiting, _TOGETHER)):
            begun = [(audit, next(audit)) for audit in (self._audit(*one) for one in some)]
            found += [next(audit, early) for audit, early in begun]
        return [audited for audited in found if audited]

    def _audit(self, subscriber: str, database_url: str) -> Iterator[Audited | None]:
        """Yield None once a subscriber's state is read, and then what was found.

        Why it can't be audited is part of that, and comes instead of None where nothing is read.
        """
        situation = None
        try:
            with (
                translated("audit"),
                reading(database_url, f"subscriber {subscriber}") as connection,
            ):
                situation = read_situation(connection)
                yield None
                starts = range_starts(connection)
                snapshot = export_snapshot(connection)
                name, path_filter = f"subscriber {subscriber}", situation.path_filter
                here = Repository(database_url, name, snapshot, self.top, path_filter)
                expected = self.expectations.of(subscriber, situation)
                found = self._compared(subscriber, situation, expected, here, starts)
        except PackhorseError as error:
            why = as_typed(" ".join(str(error).split()))
            found = Audited(subscriber, _offsets(situation), problem=why)
        yield found

    def _compared(
        self,
        subscriber: str,
        situation: Situation,
        expected: Expected,
        here: Repository,
        starts: Sequence[str],
    ) -> Audited:
        content = self._audited(expected.content, situation)
        hashes = here.hashes(self.spark, starts).collect()  # at most some thousand
        held = [(row[0], row[1], row[2]) for row in hashes]
        ranges = differing(range_hashes(content, starts), held)
        notes = [*notes_of(situation), *expected.notes]
        if not ranges:
            return Audited(subscriber, _offsets(situation), notes=notes)
        digests = here.digests(self.spark, starts, ranges)
        folders = sorted(situation.path_filter.may_be_folders)
        with (
            content.where(by_path(in_ranges(starts, ranges))).together() as suspect,
            kept(difference(_with_origins(suspect), digests, folders)) as suspected,
            kept(_confirmed(suspected, suspect, expected.clears, here)) as certain,
            judged(certain, expected, situation.agents, here) as findings,
        ):
            counts, shown = self._reported(findings.withColumn("subscriber", f.lit(subscriber)))
        return Audited(subscriber, _offsets(situation), counts, shown, notes)

    def _audited(self, content: ContentHistory, situation: Situation) -> ContentHistory:
        """Return what is below `top` and taken by the subscriber (R35)."""
        content, path_filter = content.within(self.top), situation.path_filter
        return content if path_filter.holds_all else content.where(by_path(path_filter.holds))

    def _reported(self, findings: DataFrame) -> tuple[dict[str, int], list[Finding]]:
        """Save the findings; return how many there are of each kind, and the first of them."""
        self._save(findings)
        counted = findings.groupBy("kind").count().collect()
        counts = {row["kind"]: row["count"] for row in counted}
        shown = findings.orderBy("path").limit(self.limit).collect()
        return (
            {kind: counts.get(kind, 0) for kind in (MISSING, EXTRA, DIFFERENT, UNDECIDED)},
            [Finding(*(row[name] for name in _COLUMNS)) for row in shown],
        )

    def _save(self, findings: DataFrame) -> None:
        rows = c.require(findings, FINDINGS, "audit")
        files = written(rows, self.location, as_they_are(self._table, FINDINGS))
        held = stored(self.location, self._table)
        commit(self.location, self._table, held, (file.action for file in files))


def _confirmed(
    suspected: DataFrame, content: ContentHistory, clears: DataFrame, here: Repository
) -> DataFrame:
    """Return the findings: without what is equal as JSON, extra paths with who should remove them.

    A package that cleared a path counts, though others may have written below it since.
    """
    unlike = suspected.where(f.col("kind") == DIFFERENT)
    really = here.confirmed(content.only(unlike).unordered())
    extra = suspected.where(f.col("kind") == EXTRA).select("path", "kind")
    extra = extra.join(removals_of(extra, clears), "path", "left")
    reported = suspected.where(f.col("kind") == MISSING).unionByName(unlike.join(really, "path"))
    return reported.select(*_COLUMNS).unionByName(
        extra.select(
            "path", "kind", "offset", f.coalesce("package_id", f.lit("")).alias("package_id")
        )
    )


def _offsets(situation: Situation | None) -> dict[str, int]:
    return (
        {subscription.agent: subscription.offset for subscription in situation.subscriptions}
        if situation
        else {}
    )


def _with_origins(content: ContentHistory) -> DataFrame:
    """Return the winners; what came with a snapshot has that one's offset."""
    if content.texts.base is None:
        return content.winners
    own = f.lit(content.texts.base.offset).cast("long")
    offset = f.when(f.col("package_id") == "", own).otherwise(f.col("offset"))
    return content.winners.withColumn("offset", offset)


@contextmanager
def judged(
    findings: DataFrame, expected: Expected, agents: Sequence[str], here: Repository
) -> Iterator[DataFrame]:
    """Lend the findings; `UNDECIDED` are those that hold what one of several subscriptions left."""
    if len(agents) < 2 or findings.isEmpty():
        yield findings
        return
    with ExitStack() as stack:
        expected = stack.enter_context(_with_past(findings.sparkSession, expected))
        subscriptions = [_left_by(agent, findings, expected, here, stack) for agent in agents]
        paths = (
            reduce(DataFrame.unionByName, subscriptions)
            .distinct()
            .withColumn("undecided", f.lit(True))
        )
        kind = f.when(f.col("undecided"), UNDECIDED).otherwise(f.col("kind"))
        joined = findings.join(paths, "path", "left").withColumn("kind", kind).drop("undecided")
        yield stack.enter_context(kept(joined))


@contextmanager
def _with_past(spark: SparkSession, expected: Expected) -> Iterator[Expected]:
    """Lend it with all events that are known.

    A snapshot holds the log's order, no subscription's.
    """
    if expected.past is None:
        yield expected
        return
    packages = expected.past()
    texts = Texts(packages, expected.content.texts.blobs_url)
    with kept(package_events(spark, packages)) as events:
        content = replace(expected.content, texts=texts)
        yield replace(expected, content=content, events=events)


def _left_by(
    agent: str, findings: DataFrame, expected: Expected, here: Repository, stack: ExitStack
) -> DataFrame:
    """Return the paths that are as one subscription alone has left them.

    Absent, or with this content.
    """
    events = stack.enter_context(kept(expected.events_of(agent)))
    paths = findings.select("path", "kind")
    winners = fold(events).join(paths.select("path"), "path", "left_semi")
    own = ContentHistory(stack.enter_context(kept(winners)), expected.content.texts)
    missing, there = paths.where(f.col("kind") == MISSING), paths.where(f.col("kind") != MISSING)
    removed = removals_of(missing, events.where(f.col("kind") == CLEAR)).select("path")
    unlike = here.confirmed(own.only(there).unordered())
    alike = own.only(there).winners.join(unlike, "path", "left_anti")
    # A write makes the folders above it only where there is nothing: somebody had removed it.
    folder = f.col("position") == MERE_FOLDER
    made = alike.where(folder).join(removals_of(there, expected.clears), "path", "left_semi")
    return (
        removed.join(own.winners, "path", "left_anti")
        .unionByName(alike.where(~folder).select("path"))
        .unionByName(made.select("path"))
    )
