"""The measures against counting one by one, over worlds that Hypothesis makes."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from packhorse_services.pipeline.measures import announced, hourly, outcomes
from packhorse_services.pipeline.measures.hourly import backlog
from packhorse_services.pipeline.storage import schemas
from tests.harness.silver_rows import HOUR, announcement, milliseconds, package, status
from tests.spark.measures.measures_model import Model

pytestmark = pytest.mark.spark

_WORLDS = 12
_EXAMPLES = int(os.environ.get("TEST_SPARK_EXAMPLES", "1"))


class World(tuple[list[Any], list[Any], list[Any]]):
    """Packages, statuses, announcements; too many to print, the differences show enough."""

    def __repr__(self) -> str:
        return f"World of {[len(rows) for rows in self]}"


@st.composite
def worlds(draw: st.DrawFn, name: str) -> World:
    """Draw what happens to a few packages at two subscribers within three hours."""
    times = sorted(draw(st.lists(st.integers(0, 3 * 3600), min_size=1, max_size=6)))
    agent = {"publisher_agent": name}
    packages = [
        package(
            *(number, second * 1000),
            accepted_ms=second * 1000 - draw(st.sampled_from([0, 1000, 5000, -1000, 10**13])),
            **agent,
        )
        for number, second in enumerate(times)
    ]
    statuses, announcements = [], []
    for subscriber in ("a", "b"):
        editable = draw(st.booleans())
        for _ in range(draw(st.integers(0, 4))):
            second = draw(st.integers(0, 4 * 3600))
            decided = second * 1000 - draw(st.sampled_from([0, 1000, 1_800_000, -1000]))
            outcome = draw(st.sampled_from(["IMPORTED", "REMOVED", "REMOVED_FAILED", "SKIPPED"]))
            who = {"subscriber": subscriber, "reason": draw(st.sampled_from("xy")), **agent}
            who["attempts"] = draw(st.integers(1, 4))
            offset = draw(st.integers(0, len(times) - 1))
            statuses.append(status(offset, second * 1000, outcome, decided_ms=decided, **who))
        seconds = draw(st.lists(st.integers(0, 4 * 3600), max_size=5, unique=True))
        for second in sorted(seconds):
            there = sum(time <= second for time in times) - 1
            announcements.append(
                announcement(
                    *(second * 1000, draw(st.integers(-1, there))),
                    editable=draw(st.sampled_from([editable, editable, not editable])),
                    subscriber=subscriber,
                    started_offset=draw(st.sampled_from([-1, -1, 1])),
                    retries=draw(st.integers(0, 4)),
                    state=draw(st.sampled_from(["RUNNING", "BLOCKED", "IDLE"])),
                    blocked_since_ms=draw(st.sampled_from([0, 1])),
                    last_error=draw(st.sampled_from("xy")),
                    **agent,
                )
            )
    return World((packages, statuses, announcements))


many_worlds = st.tuples(*[worlds(f"agent-{number}") for number in range(_WORLDS)]).filter(
    # The first example is always the simplest, and in the gate it would be the only one.
    lambda several: any(world[1] for world in several)
)


def measured(spark: SparkSession, world: World) -> tuple[DataFrame, DataFrame, DataFrame]:
    packages = spark.createDataFrame(world[0], schemas.PACKAGES)
    statuses = spark.createDataFrame(world[1], schemas.STATUSES)
    announcements = spark.createDataFrame(world[2], schemas.ANNOUNCEMENTS)
    rows = announced.subscription_rows(
        announcements, spark.createDataFrame([], schemas.SUBSCRIPTIONS)
    ).cache()
    happened = outcomes.outcomes(rows, statuses, packages).cache()
    failures = hourly.failures(happened, rows, packages)
    here = announced.subscription_hours(rows)
    waiting = backlog(here, outcomes.facts(packages))
    delivery = hourly.delivery(happened, failures, waiting, announced.blocked_hours(rows))
    return delivery, failures, hourly.slowest(happened)


def differences(spark: SparkSession, world: World) -> list[str]:
    """Return where the tables are not what the model says."""
    model = Model(*world)
    delivery, failures, slowest = measured(spark, world)
    wanted = model.delivery()
    found = {_key(row): row.asDict() for row in delivery.collect()}
    wrong = [f"delivery of {key}" for key in found.keys() ^ wanted.keys()]
    for key in found.keys() & wanted.keys():
        for name in set(found[key]) - {"subscriber", "publisher_agent", "hour", "day"}:
            value, expected = found[key][name], wanted[key][name] or 0
            if abs((value or 0) - expected) > int("_p" in name):
                wrong.append(f"{name} of {key}: {value}, not {expected}")
    counts = {(*_key(row), row["reason"]): row["count"] for row in failures.collect()}
    ranks: dict[Any, list[Any]] = {}
    for row in slowest.orderBy("rank").collect():
        ranks.setdefault(_key(row), []).append((-row["latency_ms"], row["offset"]))
    wrong += ["failures"] * (counts != model.failures())
    return wrong + ["slowest"] * (ranks != model.slowest())


def _key(row: Any) -> tuple[str, str, int]:
    return row["subscriber"], row["publisher_agent"], milliseconds(row["hour"])


def joined(several: tuple[World, ...]) -> World:
    return World([row for world in several for row in world[kind]] for kind in range(3))


@settings(
    max_examples=_EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # to shrink would take Spark jobs each time
)
@given(several=many_worlds)
def test_measures_are_what_counting_one_by_one_gives(
    spark: SparkSession, several: tuple[World, ...]
) -> None:
    wrong = differences(spark, joined(several))
    assert not wrong, "\n".join(wrong)


@pytest.mark.proof
def test_a_broken_transformation_is_caught(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported_late = [announcement(HOUR - 1, 0), announcement(HOUR + 1, 1)]
    world = World(([package(1, 0)], [], reported_late))
    assert differences(spark, world) == []
    right = outcomes.announced

    def without_silent_ones(rows: DataFrame, known: DataFrame) -> DataFrame:
        return right(rows, known).where("offset < 0")

    monkeypatch.setattr(outcomes, "announced", without_silent_ones)
    assert any("delivered" in wrong or "delivery" in wrong for wrong in differences(spark, world))
