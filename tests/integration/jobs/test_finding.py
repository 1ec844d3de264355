"""Finding jobs: states, patterns of topics, templates of properties, and pages, in Postgres."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from packhorse.jobs.filters import JobFilter, StateGroup, Template
from packhorse.jobs.job import JobState, UnknownJob
from packhorse.jobs.ledger import finding
from packhorse.jobs.ledger.finding import FilterTooWide
from packhorse.jobs.names import matches
from tests.harness.jobs.stored import bookkeeper, jobs_of, store_finished, store_many_finished

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def found(url: str, **wanted: Any) -> list[int]:
    return [job.number for job in jobs_of(url).find(JobFilter(**wanted)).jobs]


def test_unfinished_come_oldest_first_then_history_newest_first(database_url: str) -> None:
    jobs = jobs_of(database_url)
    old = store_finished(database_url, NOON)
    new = store_finished(database_url, NOON + timedelta(hours=1))
    first, second = jobs.add_job("a/b").job.number, jobs.add_job("a/b").job.number
    assert found(database_url) == [first, second, new, old]
    assert found(database_url, group=StateGroup.HISTORY) == [new, old]
    assert found(database_url, group=StateGroup.QUEUED) == [first, second]
    assert found(database_url, group=StateGroup.ACTIVE) == []


def test_pages_hold_every_job_once(database_url: str) -> None:
    jobs = jobs_of(database_url)
    expected = [jobs.add_job("a/b").job.number for _ in range(3)]
    expected += [store_finished(database_url, NOON) for _ in range(4)][::-1]  # at one moment
    for limit in (1, 2, 3, 4, 5, 7, 100):
        pages = [jobs.find(limit=limit)]
        while (after := pages[-1].after) is not None:
            pages.append(jobs.find(after=after, limit=limit))
        assert [job.number for page in pages for job in page.jobs] == expected
        assert all(0 < len(page.jobs) <= limit for page in pages)


def test_each_group_has_its_states(database_url: str) -> None:
    numbers = {
        state: store_finished(database_url, NOON, state) for state in JobState if state.final
    }
    for group in StateGroup:
        expected = {numbers[state] for state in group.states if state.final}
        assert set(found(database_url, group=group)) == expected, group


def test_a_pattern_of_topics_means_the_same_as_for_consumers(database_url: str) -> None:
    topics = ["a", "a/b", "a/b/c", "a/b/c/d", "a.b", "a/bc", "a/b0", "ab/c", "a/B", "b"]
    numbers = {topic: store_finished(database_url, NOON, topic=topic) for topic in topics}
    for pattern in ("**", "a", "a/b", "a/*", "a/**", "a/b/*", "a/b/**", "b/**", "a.b", "a.b/**"):
        expected = {numbers[topic] for topic in topics if matches(pattern, topic)}
        assert set(found(database_url, topic=pattern)) == expected, pattern


PROPERTIES: dict[str, dict[str, Any]] = {
    "nine": {"size": 9, "name": "img9", "done": False},
    "ten": {"size": 10, "name": "img10", "done": True, "none": None},
    "half": {"size": 9.5, "name": "Zebra"},
    "text": {"size": "9", "name": "äpfel"},
    "big": {"size": 2**70, "name": 'o\'brien "x" \\ %s {}'},
    "deep": {"size": [9], "name": {"a": 1}},
    "empty": {},
}


CASES: list[tuple[list[Template], set[str]]] = [
    ([{"size": 9}], {"nine"}),
    ([{"=size": 9.0}], {"nine"}),
    ([{"size": "9"}], {"text"}),
    ([{">size": 9}], {"ten", "half", "big"}),  # as numbers: as texts 10 would be below 9
    ([{">=size": 9}], {"nine", "ten", "half", "big"}),
    ([{"<size": 10}], {"nine", "half"}),
    ([{"<=size": 10}], {"nine", "half", "ten"}),
    ([{">=size": 9.5, "<size": 2**70}], {"ten", "half"}),
    ([{"=size": 2**70}], {"big"}),
    ([{">size": "8"}], {"text"}),
    ([{"<name": "img9"}], {"ten", "half"}),  # code points: upper case first, 1 before 9
    ([{">name": "zz"}], {"text"}),
    ([{"done": True}], {"ten"}),
    ([{"done": False}], {"nine"}),
    ([{"none": None}], {"ten"}),
    ([{"size": 9, "name": "img10"}], set()),
    ([{"size": 9}, {"name": "img10"}], {"nine", "ten"}),
    ([{"absent": 1}], set()),
    ([{"<absent": 1}], set()),
    ([{}], set(PROPERTIES)),
    ([], set(PROPERTIES)),
    ([{"name": 'o\'brien "x" \\ %s {}'}], {"big"}),
    ([{"name": "' OR '1'='1"}], set()),
    ([{"x' = '1' OR '1": 1}], set()),
]


def test_templates(database_url: str) -> None:
    numbers = {
        store_finished(database_url, NOON, properties=properties): name
        for name, properties in PROPERTIES.items()
    }
    for templates, expected in CASES:
        named = {numbers[number] for number in found(database_url, templates=templates)}
        assert named == expected, templates


def test_names_of_a_filter_compare_exactly(database_url: str) -> None:
    jobs = jobs_of(database_url, "one")
    mine = jobs.add_job("a/b", id="x' OR true --").job
    other = jobs_of(database_url, "two").add_job("a/b", id="y").job
    assert found(database_url, application="one") == [mine.number]
    assert found(database_url, id="x' OR true --") == [mine.number]
    assert found(database_url, queue="main") == [mine.number, other.number]
    assert found(database_url, queue="mai%") == []
    assert found(database_url, schedule="s") == found(database_url, instance="i") == []


def test_a_job_is_found_by_its_number_and_by_its_id(database_url: str) -> None:
    jobs = jobs_of(database_url)
    number = store_finished(database_url, NOON, topic="c", id="7", properties={"a": [1, {"b": 2}]})
    waiting = jobs.add_job("c", {"x": 1}, id="8").job
    assert jobs.get(number).properties == {"a": [1, {"b": 2}]}
    assert jobs.get(number).finished_at == NOON
    assert jobs.get_by_id("c", "7").number == number
    assert jobs.get_by_id("c", "8") == jobs.get(waiting.number) == waiting
    with pytest.raises(UnknownJob, match="there is no job 999"):
        jobs.get(999)
    with pytest.raises(UnknownJob, match="no job 'c' of '7'"):
        jobs.get_by_id("7", "c")


def test_counting_stops_at_the_most(database_url: str) -> None:
    jobs = jobs_of(database_url)
    for _ in range(3):
        store_finished(database_url, NOON)
        jobs.add_job("a/b")
    assert jobs.count() == 6
    assert jobs.count(most=4) == 4
    assert jobs.count(JobFilter(topic="a/*", group=StateGroup.QUEUED)) == 3
    assert jobs.count(JobFilter(topic="b/*")) == 0


def test_a_search_that_takes_too_long_is_ended(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_many_finished(database_url, 30_000)
    monkeypatch.setattr(finding, "PATIENCE_MS", 1)
    nowhere = JobFilter(templates=[{"absent": 1}])
    for search in (jobs_of(database_url).find, jobs_of(database_url).count):
        with pytest.raises(FilterTooWide, match="name a topic"):
            search(nowhere)


def test_a_page_of_a_great_history_takes_no_scan(database_url: str) -> None:
    with bookkeeper(database_url) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        for condition in ("true", "topic = 'a'", "topic >= 'a/' AND topic < 'a0'"):
            plan = "\n".join(
                str(line)
                for (line,) in connection.execute(
                    f"EXPLAIN SELECT * FROM jobs.finished WHERE {condition} "
                    "ORDER BY finished_at DESC, number DESC LIMIT 100"
                )
            )
            assert "Index Scan" in plan, plan
