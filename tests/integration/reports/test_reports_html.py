"""The HTML report: complete in itself, and safe whatever the tables hold."""

import html
import re
from datetime import timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from packhorse_services.pipeline.storage.location import Location
from tests.harness.measures import NOON, Reports, measure

HOSTILE = "/a/<script>alert(1)</script>\"'&$\\frac{1}$\x00_"
TITLES = ["Latency", "Throughput", "Backlog", "Time blocked"]
TABLES = ["Subscribers", "Publisher agents", "Failures", "Slowest paths"]
ALLOWED = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table"}
ALLOWED |= {"thead", "tbody", "tr", "th", "td", "svg", "g", "path", "defs", "use", "text"}
ALLOWED |= {"clippath", "rect", "tspan"}


class Elements(HTMLParser):
    """Collects the elements, and whatever refers to something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.references: set[str] = set()
        self.handlers: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action", "data"):
                self.references.add(value or "")
            if name.startswith("on"):
                self.handlers.add(name)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    location = Location.parse(str(tmp_path_factory.mktemp("page") / "tables"))
    subscriptions = [
        {"subscriber": name, "hour": NOON + timedelta(hours=n), "backlog_end": n, "delivered": 7}
        for name in ("sub1", HOSTILE, "_hidden")
        for n in range(3)
    ]
    measure(location, "delivery", *subscriptions, {"latency_p50_ms": None, "latency_p95_ms": None})
    measure(location, "publishing", {"publisher_agent": HOSTILE, "adds": 12345})
    measure(location, "failures", {"reason": HOSTILE, "count": 3}, {"reason": HOSTILE, "count": 4})
    measure(location, "slowest", {"path": HOSTILE, "latency_ms": 90_000}, {"path": "/b"})
    answer = Reports(location).get("/reports/delivery.html")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return answer.text


def test_it_has_every_plot_and_table(page: str) -> None:
    assert re.findall("<h2>([^<]+)</h2>", page) == [*TITLES, *TABLES]
    assert page.count("<svg") == len(TITLES)
    assert page.count("<table>") == len(TABLES)
    for svg in re.findall("<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)


def test_it_has_no_script_and_refers_to_nothing_outside(page: str) -> None:
    found = Elements(page)
    assert found.names <= ALLOWED
    assert not found.handlers
    assert all(reference.startswith("#") for reference in found.references)
    assert not re.search(r"url\((?!#)|@import", page)
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r'https?://[^"\s<)]+', page)) <= names


def test_the_check_would_notice_a_script(page: str) -> None:
    broken = page.replace("&lt;script&gt;", "<script>")
    assert "script" in Elements(broken).names


def test_hostile_text_is_text(page: str) -> None:
    assert "<script" not in page
    assert "/a/&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;$\\frac{1}$\ufffd_" in page
    assert "\x00" not in page


def test_a_name_that_a_legend_would_leave_out_is_in_it(page: str) -> None:
    assert len(re.findall("_hidden[^<]*</text>", page)) == len(TITLES)


def test_sums_are_those_of_the_rows_that_were_asked_for(
    reports: Reports, location: Location
) -> None:
    measure(
        location,
        "delivery",
        {"delivered": 1, "latency_p50_ms": 1000, "latency_p95_ms": 9000, "backlog_end": 5},
        {
            "delivered": 3,
            "latency_p50_ms": 5000,
            "latency_p95_ms": 6000,
            "backlog_end": 2,
            "hour": NOON + timedelta(hours=1),
            "blocked_ms": 90_000,
        },
        {"delivered": 0, "latency_p50_ms": None, "hour": NOON - timedelta(hours=1)},
        {"subscriber": "sub2"},
        {"publisher_agent": "bulk"},
    )
    page = reports.get("/reports/delivery.html", "main", subscriber="sub1").text
    assert "subscriber sub1" in page
    assert "<td>sub2</td>" not in page
    assert "bulk" not in page
    (row,) = re.findall("<tr>(<td>sub1.*)</tr>", page)
    cells = re.findall("<td[^>]*>([^<]*)</td>", row)
    assert cells[:6] == ["sub1", "main", "4", "4.000 s", "9.000 s", "1.000 s"]
    assert cells[-2:] == ["2", "1.5 min"]


def test_nothing_measured_is_said(reports: Reports) -> None:
    assert "Nothing was measured" in reports.get("/reports/delivery.html").text


def test_failures_that_differ_by_their_paths_are_of_one_kind(
    reports: Reports, location: Location
) -> None:
    reasons = [f"'/site/news/n{number}' is outside the roots" for number in range(30)]
    measure(location, "failures", *({"reason": reason, "count": 2} for reason in reasons))
    rows = re.findall("<tr>(.*?)</tr>", reports.get("/reports/delivery.html").text)
    (found,) = [re.findall(">([^<]*)</td>", row) for row in rows if "outside" in row]
    assert found[2:] == ["… is outside the roots", "60", "30", html.escape(reasons[0])]


def test_plots_show_the_whole_period_and_name_who_has_the_same_line(
    reports: Reports, location: Location
) -> None:
    names = [f"sub{number}" for number in range(1, 6)]
    measure(location, "delivery", *({"subscriber": one, "hour": NOON} for one in names))
    plots = re.findall("<svg.*?</svg>", reports.get("/reports/delivery.html").text, re.DOTALL)
    assert len(plots) == len(TITLES)
    for plot in plots:
        assert "sub1, sub2, sub3 and 2 more" in plot
        assert "2025" not in plot
        labels = re.findall(r">([\d.]+)</text>", plot)
        assert "packages" not in plot or not any("." in fire_time for fire_time in labels), labels
