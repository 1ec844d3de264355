"""History is forgotten by when jobs finished, in every final state, in bounded batches."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from packhorse.jobs.consumer import JobContext, Outcome
from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.job import FINAL_STATES, JobState
from packhorse.jobs.ledger import pruning
from packhorse.jobs.ledger.pruning import HistoryRule, PrunedJobs, PruneHistory, prune
from packhorse.jobs.names import matches
from tests.harness.jobs.made import made_job
from tests.harness.jobs.stored import bookkeeper, jobs_of, store_finished, store_many_finished

DAY = timedelta(days=1)
DAY_S = DAY.total_seconds()


def now(url: str) -> datetime:
    with bookkeeper(url) as connection:
        [(time,)] = connection.execute("SELECT clock_timestamp()").fetchall()
    assert isinstance(time, datetime)
    return time


def left(url: str) -> set[int]:
    return {job.number for job in jobs_of(url).find(limit=1_000).jobs}


def pruned(url: str, rule: HistoryRule, **given: Any) -> PrunedJobs:
    return prune(lambda: psycopg.connect(url), rule, **given)


def test_age_is_that_of_the_end_not_of_the_beginning(database_url: str) -> None:
    time = now(database_url)
    late = store_finished(database_url, time - DAY / 2, created_at=time - 30 * DAY)
    store_finished(database_url, time - 2 * DAY, created_at=time - 2 * DAY)
    assert pruned(database_url, HistoryRule(max_age_s=DAY_S)) == PrunedJobs(1, complete=True)
    assert left(database_url) == {late}


def test_every_final_state_is_forgotten(database_url: str) -> None:
    time = now(database_url)
    for state in FINAL_STATES:
        store_finished(database_url, time - 2 * DAY, state)
    waiting = jobs_of(database_url).add_job("a").job.number
    assert pruned(database_url, HistoryRule(max_age_s=DAY_S)).forgotten == len(FINAL_STATES)
    assert left(database_url) == {waiting}, "and no unfinished one"


def test_only_the_states_of_the_rule(database_url: str) -> None:
    time = now(database_url)
    numbers = {s: store_finished(database_url, time - 2 * DAY, s) for s in FINAL_STATES}
    pruned(database_url, HistoryRule(max_age_s=DAY_S, states=(JobState.SUCCEEDED,)))
    assert left(database_url) == {numbers[s] for s in FINAL_STATES if s is not JobState.SUCCEEDED}


def test_topics_are_patterns_of_topics_as_they_are(database_url: str) -> None:
    time = now(database_url)
    topics = ["a", "a/b", "a.b", "a/b/c", "b/c", "a/b.c"]
    for pattern in (("a/b",), ("a.b",), ("a/**",), ("a/*", "b/c")):
        numbers = {t: store_finished(database_url, time - 2 * DAY, topic=t) for t in topics}
        before = left(database_url)
        pruned(database_url, HistoryRule(max_age_s=DAY_S, topics=pattern))
        gone = {t for t in topics if any(matches(one, t) for one in pattern)}
        assert {t for t in topics if numbers[t] not in left(database_url)} == gone, pattern
        pruned(database_url, HistoryRule(max_count=0))
        assert before


def test_the_newest_of_the_rules_own_stay(database_url: str) -> None:
    time = now(database_url)
    own = [store_finished(database_url, time - n * DAY, topic="a/b") for n in range(5)]
    other = [store_finished(database_url, time - n * DAY, topic="c") for n in range(5)]
    rule = HistoryRule(max_count=2, topics=("a/*",))
    assert pruned(database_url, rule) == PrunedJobs(3, complete=True)
    assert left(database_url) == {*own[:2], *other}
    assert pruned(database_url, rule) == PrunedJobs(0, complete=True)


def test_either_limit_is_enough(database_url: str) -> None:
    time = now(database_url)
    numbers = [store_finished(database_url, time - n * DAY) for n in range(6)]
    assert pruned(database_url, HistoryRule(max_age_s=3.5 * DAY_S, max_count=5)).forgotten == 2
    assert left(database_url) == set(numbers[:4])
    assert pruned(database_url, HistoryRule(max_age_s=3.5 * DAY_S, max_count=1)).forgotten == 3
    assert left(database_url) == {numbers[0]}


def test_a_transaction_looks_at_no_more_than_a_batch(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_many_finished(database_url, 1_000, topics=2)
    batches: list[int] = []
    prune_batch = pruning._prune_batch

    def counted(*given: Any) -> Any:
        found = prune_batch(*given)
        batches.append(found[0])
        return found

    monkeypatch.setattr(pruning, "_prune_batch", counted)
    with bookkeeper(database_url) as connection:
        connection.execute(
            "UPDATE jobs.finished SET finished_at = finished_at - interval '1 day' "
            "WHERE (properties ->> 'n')::int >= 100"
        )
    assert pruned(database_url, HistoryRule(max_age_s=DAY_S, topics=("bulk/1",)), batch=100) == (
        PrunedJobs(450, complete=True)
    )
    assert len(batches) >= 9
    assert max(batches) <= 100
    assert len(left(database_url)) == 550


def test_it_ends_between_batches_when_asked(database_url: str) -> None:
    store_many_finished(database_url, 500)
    rule = HistoryRule(max_age_s=0)
    assert pruned(database_url, rule, batch=100, is_enough=lambda: True) == PrunedJobs(100, False)
    assert pruned(database_url, rule, batch=100) == PrunedJobs(400, True)
    assert left(database_url) == set()


def test_a_job_that_somebody_changes_is_left_for_later(database_url: str) -> None:
    time = now(database_url)
    number = store_finished(database_url, time - 2 * DAY)
    store_finished(database_url, time - 2 * DAY)
    with bookkeeper(database_url) as connection:
        connection.execute("SELECT FROM jobs.finished WHERE number = %s FOR UPDATE", (number,))
        assert pruned(database_url, HistoryRule(max_age_s=DAY_S)).forgotten == 1
    assert left(database_url) == {number}


class Context:
    """As much of a `JobContext` as the consumer needs."""

    def __init__(self, stops: Callable[[], bool] = lambda: False) -> None:
        self._stops = stops

    @property
    def stop_requested(self) -> bool:
        return self._stops()


def consume(
    url: str,
    properties: dict[str, Any],
    *,
    stops: bool = False,
    handled_topics: Callable[[], dict[str, HandledTopics] | None] = dict,
) -> tuple[Outcome, str]:
    context: JobContext = Context(lambda: stops)  # type: ignore[assignment]
    consumer = PruneHistory(lambda: psycopg.connect(url), handled_topics)
    result = consumer(made_job(properties=properties), context)
    return result.outcome, result.message


def test_as_a_consumer_it_takes_the_rule_from_its_job(database_url: str) -> None:
    time = now(database_url)
    store_finished(database_url, time - 8 * DAY)
    store_finished(database_url, time - 2 * DAY)
    kept = store_finished(database_url, time - 2 * DAY, "ERROR", topic="b")
    assert consume(database_url, {}) == (Outcome.OK, "1 jobs, 0 topics forgotten")
    chosen = {"max_age_s": 86_400, "topics": ["a/**"], "states": ["SUCCEEDED"]}
    assert consume(database_url, chosen) == (Outcome.OK, "1 jobs, 1 topics forgotten")
    assert left(database_url) == {kept}
    outcome, message = consume(database_url, {"max_age_s": "old"})
    assert (outcome, message) == (Outcome.CANCEL, "max_age_s is a number")


def test_a_consumer_that_is_stopped_says_that_it_is_not_done(database_url: str) -> None:
    store_many_finished(database_url, 2_500)
    outcome, message = consume(database_url, {"max_count": 0}, stops=True)
    assert (outcome, message) == (Outcome.FAILED, "1000 jobs forgotten")


def test_topics_are_forgotten_with_history_while_the_consumers_are_known(
    database_url: str,
) -> None:
    time = now(database_url)
    for topic in ("named", "wide/1"):
        store_finished(database_url, time - 8 * DAY, topic=topic)
    reported = {"i1": HandledTopics(("named", "wide/**"))}
    assert consume(database_url, {}, handled_topics=lambda: None)[1] == "2 jobs, 0 topics forgotten"
    assert (
        consume(database_url, {}, handled_topics=lambda: reported)[1]
        == "0 jobs, 1 topics forgotten"
    )
    assert set(jobs_of(database_url).statistics().topics) == {"named"}
