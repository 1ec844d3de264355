"""The pages of jobs over HTTP: what they show, and that they show it as text."""

import re
from datetime import UTC, datetime
from functools import partial
from html import escape, unescape

import pytest

from packhorse.jobs.ledger import figures, finding
from packhorse.jobs.ledger.figures import read_statistics
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.store import create_schedule
from packhorse.jobs.scheduling.timing import At, Cron
from tests.harness.console import ConsoleSite, address, row, section
from tests.harness.jobs.site import JobsSite
from tests.harness.jobs.stored import bookkeeper, insert_finished, store_many_finished

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}"
ATTEMPT = {
    "number": 1,
    "instance": "worker-1",
    "started_at": "2026-01-01T12:00:00Z",
    "ended_at": "2026-01-01T12:00:09Z",
    "outcome": "LOST",
    "reason": "its lease ran out",
}


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'data-job="(\d+)"', text)]


def test_jobs_are_there_with_what_they_say(site: JobsSite, console: ConsoleSite) -> None:
    waiting = site.jobs.add_job("images/thumbnail", id="cover").job.number
    site.active(1001, progress={"step": 3, "steps": 10, "message": "scaling"})
    site.finished(1002, "GIVEN_UP", result_message="no disk", retry=True)
    text = console.get("jobs").text
    assert numbers(text) == [waiting, 1001, 1002]
    assert ">cover<" in row(text, f'data-job="{waiting}"')
    assert "3 of 10: scaling" in row(text, 'data-job="1001"')
    assert "no disk" in row(text, 'data-job="1002"')
    assert '<span class="badge">retry</span>' in row(text, 'data-job="1002"')


def test_the_filter_is_in_the_address(site: JobsSite, console: ConsoleSite) -> None:
    for size in (3, 10, 12):
        site.jobs.add_job("images/thumbnail", {"size": size, "color": "red"}, f"id-{size}")
    site.jobs.add_job("mail/send", {"size": 50})
    site.finished(1001, "ERROR", properties={"size": 50, "color": "red"})
    wanted = "state=QUEUED&topic=images%2F*&queue=&id=&where=size%3E%3D10+and+color%3Dred"
    text = console.get(f"jobs?{wanted}").text
    assert len(numbers(text)) == 2
    assert '<select name="state">' in text
    assert '<option value="QUEUED" selected>' in text
    assert 'name="topic" value="images/*"' in text
    assert 'name="where" value="size&gt;=10 and color=red"' in text
    assert numbers(console.get(f"jobs/content?{wanted}").text) == numbers(text)
    assert len(numbers(console.get("jobs?id=id-12").text)) == 1


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("state=LOST", "state"),
        ("topic=/images", "topic"),
        ("where=size!3", "is no operator"),
        ("where=size", "is no condition"),
        ("after=x", "cursor"),
    ],
)
def test_what_is_no_filter_is_reported_on_the_page(
    console: ConsoleSite, query: str, says: str
) -> None:
    text = console.get(f"jobs?{query}").text
    assert re.search(f'role="alert">[^<]*{says}', text)
    assert 'data-queue="main"' in text


def test_a_search_that_takes_too_long_is_reported_and_the_rest_is_shown(
    site: JobsSite, console: ConsoleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_many_finished(site.database_url, 30_000)
    monkeypatch.setattr(finding, "PATIENCE_MS", 1)
    for path in ("jobs", "jobs/content"):
        answer = console.get(f"{path}?where=absent=1")
        assert answer.status_code == 200
        assert re.search('role="alert">[^<]*name a topic', answer.text)
        assert 'data-queue="main"' in answer.text


def test_a_queue_with_more_than_is_counted_says_so(
    site: JobsSite, console: ConsoleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.jobs.add_job("images/thumbnail")
    assert "<span>1</span>" in row(console.get("jobs").text, 'data-queue="main"')
    monkeypatch.setattr(figures, "read_statistics", partial(read_statistics, most=1))
    assert "<span>1+</span>" in row(console.get("jobs").text, 'data-queue="main"')


def test_many_jobs_have_pages(site: JobsSite, console: ConsoleSite) -> None:
    moments = [datetime.fromtimestamp(1_700_000_000 + second, UTC) for second in range(120)]
    with bookkeeper(site.database_url) as connection:
        made = [insert_finished(connection, moment) for moment in moments]
    text = console.get("jobs").text
    seen = numbers(text)
    while "Next page" in text:
        text = console.get(address(text, "Next page")).text
        seen += numbers(text)
    assert seen == made[::-1]


def test_one_job_with_its_attempts_and_its_log(site: JobsSite, console: ConsoleSite) -> None:
    site.active(
        1001,
        id="cover",
        attempts=2,
        retry=True,
        properties={"size": 3},
        extra={"found": ["a"]},
        progress={"step": 1, "steps": 4, "message": "half"},
        log=["began", "reads"],
        past_attempts=[ATTEMPT],
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    text = console.get("jobs/1001").text
    assert "<h1>Job 1001</h1>" in text
    assert "an earlier attempt may have done a part" in text
    assert '"size": 3' in unescape(section(text, "Properties"))
    assert '"found"' in unescape(section(text, "Properties"))
    assert "its lease ran out" in row(text, 'data-attempt="1"')
    assert "began\nreads" in section(text, "Log")
    assert '<progress max="4"' in text
    assert "0af7651916cd43dd8448eb211c80319c" in text


def test_who_waits_for_nobody_is_seen(site: JobsSite, console: ConsoleSite) -> None:
    site.jobs.add_job("images/thumbnail")
    number = site.jobs.add_job("mail/send").job.number
    lonely = section(console.get("jobs").text, "Without a consumer")
    assert "mail/send</a> (1)" in lonely
    assert "images" not in lonely
    found = console.get(address(lonely, "mail/send")).text
    assert numbers(found) == [number]
    assert "waits for a consumer" in console.get(address(found, str(number))).text


def test_queues_and_schedules_are_there(site: JobsSite, console: ConsoleSite) -> None:
    site.jobs.put_queue(QueueConfiguration("mail", ("mail/**",), type=QueueType.UNORDERED))
    site.jobs.add_job("mail/send")
    nightly = ScheduleDefinition(
        "nightly", Cron("30 2 * * *", "Europe/Berlin"), JobAction("images/sweep"), "Sweeps"
    )
    once = ScheduleDefinition("once", At(datetime(2999, 1, 1, tzinfo=UTC)), JobAction("a/b"))
    with site.bookkeeper() as connection:
        create_schedule(connection, nightly, origin="test")
        create_schedule(connection, once, origin="test")
    text = console.get("jobs").text
    mail = row(text, 'data-queue="mail"')
    assert ">unordered<" in mail
    assert 'data-label="Queued" class="number"><span>1</span>' in mail
    schedules = row(console.get(address(text, "Schedules")).text, 'data-schedule="nightly"')
    assert "30 2 * * * (Europe/Berlin)" in schedules
    assert "Sweeps" in schedules
    shown = console.get(address(schedules, "nightly")).text
    assert section(shown, "Schedule").count("<time") == 3
    shown = console.get("schedule?name=once").text
    assert section(shown, "Schedule").count("<time") == 1


def test_what_strangers_wrote_is_text(site: JobsSite, console: ConsoleSite) -> None:
    site.finished(
        1001,
        "ERROR",
        id=HOSTILE,
        application=HOSTILE,
        result_message=HOSTILE,
        properties={HOSTILE: HOSTILE},
        log=[HOSTILE],
        past_attempts=[{**ATTEMPT, "reason": HOSTILE}],
    )
    said = f'class="says">{escape(HOSTILE)}<'
    for path, mark in (("jobs", 'data-job="1001"'), ("jobs/1001", 'data-attempt="1"')):
        page = console.get(path).text
        part = console.get(re.findall('data-refresh="/pages/([^"]+)"', page)[0]).text
        for text in (page, part):
            assert said in row(text, mark)
            assert "<script>alert" not in text
            assert "<img" not in text
    assert escape(HOSTILE) in section(text, "Log")
