"""Findings that another order of the lanes explains: the log's binds within an agent alone (R10).

What was imported last at a path is the last that one of the lanes did there. So a path that holds
what one lane by itself has left there may be right: no offset tells which lane came last.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse_services.pipeline.audit.comparison import MISSING, removals_of
from packhorse_services.pipeline.audit.expected import Expected
from packhorse_services.pipeline.audit.outcome import UNDECIDED
from packhorse_services.pipeline.audit.repository import Repository
from packhorse_services.pipeline.history.content import Content
from packhorse_services.pipeline.history.decoding import CLEAR
from packhorse_services.pipeline.history.events import kept, package_events
from packhorse_services.pipeline.history.fetching import Texts
from packhorse_services.pipeline.history.fold import MERE_FOLDER, fold


@contextmanager
def judged(
    findings: DataFrame, expected: Expected, agents: Sequence[str], here: Repository
) -> Iterator[DataFrame]:
    """Lend the findings, those `UNDECIDED` that hold what one of several lanes has left there."""
    if len(agents) < 2 or findings.isEmpty():
        yield findings
        return
    with ExitStack() as stack:
        expected = stack.enter_context(_with_past(findings.sparkSession, expected))
        lanes = [_left_by(agent, findings, expected, here, stack) for agent in agents]
        paths = reduce(DataFrame.unionByName, lanes).distinct().withColumn("undecided", f.lit(True))
        kind = f.when(f.col("undecided"), UNDECIDED).otherwise(f.col("kind"))
        joined = findings.join(paths, "path", "left").withColumn("kind", kind).drop("undecided")
        yield stack.enter_context(kept(joined))


@contextmanager
def _with_past(spark: SparkSession, expected: Expected) -> Iterator[Expected]:
    """Lend it with all events that are known: a snapshot holds the log's order, no lane's."""
    if expected.past is None:
        yield expected
        return
    packages = expected.past()
    texts = Texts(packages, expected.content.texts.blobs_url)
    with kept(package_events(spark, packages)) as events:
        content = Content(expected.content.winners, texts)
        yield replace(expected, content=content, events=events)


def _left_by(
    agent: str, findings: DataFrame, expected: Expected, here: Repository, stack: ExitStack
) -> DataFrame:
    """Return the paths that are as one lane alone has left them: absent, or with this content."""
    events = stack.enter_context(kept(expected.events_of(agent)))
    paths = findings.select("path", "kind")
    winners = fold(events).join(paths.select("path"), "path", "left_semi")
    own = Content(stack.enter_context(kept(winners)), expected.content.texts)
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
