"""Lines of how queues were: on the overview, and of one subscriber."""

from collections.abc import Iterator
from threading import Barrier
from typing import Any

import pytest

from packhorse.client.exchange import Document
from packhorse_services.console import upstream
from packhorse_services.console.frame import charts
from tests.harness.console import HOSTILE, ConsoleSite, blocked, console_site, history, lags, queue
from tests.harness.floods import DEADLINE_S
from tests.harness.written_publisher import written_publisher


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConsoleSite]:
    """A console of its own: it remembers what it has asked, and what came too late as nothing."""
    monkeypatch.setattr(upstream, "_PATIENCE_S", DEADLINE_S)
    with console_site() as made:
        made.publisher.shows(queue("sub1"), blocked("sub2"))
        made.publisher.answers["GET /commands"] = {"commands": [], "next": None}
        yield made


def test_the_overview_has_a_line_of_each_queue(site: ConsoleSite) -> None:
    answers = site.publisher.answers
    answers["GET /queue-history"] = lags(sub1=[0.0] * 30, sub2=[None, *[120.0] * 29])
    text = site.get("overview").text
    assert text.count('class="line spark"') == 2
    assert "no lag" in text
    assert "at most 2 min" in text
    assert '<td data-label="Done a minute" class="number">3.5</td>' in text
    site.get("overview/content", token="viewer")
    asked = [path for _, path, _, _ in site.publisher.requested]
    assert asked.count("/queue-history") == 1, "once for both"
    assert asked.count("/queues") == 2, "each by their own right"


def test_a_history_is_shown_to_nobody_whom_the_publisher_refuses(site: ConsoleSite) -> None:
    site.publisher.answers["GET /queue-history"] = lags(sub1=[1.0] * 30)
    site.publisher.answers["GET /queues/sub2/history"] = history("sub2", [1.0] * 60)
    assert "spark" in site.get("overview").text
    assert 'aria-label="Lag: ' in site.get("subscriber?agent=main&subscriber=sub2").text
    for path in ("queues", "subscribers/sub2"):
        site.publisher.answers[f"GET /{path}"] = (403, {"title": "Forbidden", "status": 403})
    assert "spark" not in site.get("overview").text
    refused = site.get("subscriber?agent=main&subscriber=sub2")
    assert (refused.status_code, "Lag: " in refused.text) == (403, False)


def test_without_a_history_the_pages_are_there(site: ConsoleSite) -> None:
    assert 'data-queue="sub2"' in site.get("overview").text
    assert "has no history of it" in site.get("subscriber?agent=main&subscriber=sub2").text


def test_a_subscriber_has_lines_with_axes_and_the_same_as_a_table(site: ConsoleSite) -> None:
    lag = [None, 60.0, 7_000.0, *[0.0] * 57]
    site.publisher.answers["GET /queues/sub2/history"] = history("sub2", lag)
    text = site.get("subscriber?agent=main&subscriber=sub2&hours=6").text
    assert 'aria-label="Lag: at the end 0, at most 116.7 min"' in text
    assert 'aria-label="Waiting: at the end 3, at most 3 packages"' in text
    assert 'aria-label="Done: at the end 2.5, at most 2.5 packages a minute"' in text
    assert ">200</text>" in text, "the axis ends at a round number of minutes"
    assert ">12:15</text>" in text
    assert "2026-01-01 12:02:00 UTC" in text
    assert text.count('data-label="Done a minute"') == 60
    assert "hours=6&points=60" in [path for _, path, _, _ in site.publisher.requested][-1]
    assert "packhorse get queue-history --hours 6" in text
    assert site.get("subscriber?agent=main&subscriber=sub2&hours=25").status_code == 422
    assert "style=" not in text


def test_names_in_a_history_are_text(site: ConsoleSite) -> None:
    site.publisher.shows(queue(HOSTILE))
    site.publisher.answers["GET /queue-history"] = lags(**{HOSTILE: [1.0] * 30})
    text = site.get("overview").text
    assert "spark" in text
    assert "<script>alert" not in text


def test_marks_are_few_and_short() -> None:
    for step, marks in ((60, 5), (360, 7), (1_440, 5)):
        long = history("sub", [1.0] * 60, length=[1_900_000] * 60, step_seconds=step)
        _, waiting, _ = charts.charts(Document(long))
        assert len(waiting.columns) == marks
        assert [text for _, text in waiting.rows] == ["0", "1M", "2M"]


@pytest.mark.parametrize(
    ("lag", "parts"),
    [([None] * 30, 0), ([5.0] * 30, 1), ([5.0, None, 5.0], 2), ([None, 1e9, None], 1)],
)
def test_a_line_is_broken_where_nothing_is_known(lag: list[float | None], parts: int) -> None:
    [trend] = charts.trends(Document(lags(sub=lag))).values()
    assert trend.path.count("M") == parts
    assert len(trend.path) < 40, "of equal points the first and the last"
    for one in charts.charts(Document(history("sub", lag))):
        assert all(0 <= x <= charts.WIDTH for x, _ in one.columns)
        heights = [y for y, _ in one.rows]
        assert heights == sorted(heights, reverse=True)


def test_the_publishers_tell_of_the_past_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_PATIENCE_S", DEADLINE_S)
    both = Barrier(2, timeout=DEADLINE_S)
    with written_publisher() as first, written_publisher() as second:
        urls = {"main": first.url, "second": second.url}
        for one in (first, second):
            one.answers = _Together(both)
            one.shows(queue("sub1"))
            one.answers["GET /queue-history"] = lags(sub1=[0.0] * 30)
        with console_site(publisher_urls=urls) as site:
            assert site.get("overview").text.count('class="line spark"') == 2


class _Together(dict[str, Any]):
    """Answers that tell of the past once both publishers are asked."""

    def __init__(self, both: Barrier) -> None:
        super().__init__()
        self._both = both

    def get(self, key: str, default: Any = None) -> Any:
        if key == "GET /queue-history":
            self._both.wait()
        return super().get(key, default)
