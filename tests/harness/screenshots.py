"""Pictures of the console's pages to look at: `python -m tests.harness.screenshots FOLDER`."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser

from tests.harness.browser import Tab, chromium, sign_in, tab
from tests.harness.console import (
    REASON,
    ConsoleSite,
    blocked,
    clear_bound,
    command,
    console_site,
    distribution,
    dry_run,
    failure,
    history,
    journal_record,
    lags,
    queue,
    release,
)
from tests.harness.written_jobs import written_work
from tests.harness.written_publisher import (
    AT,
    WrittenPublisher,
    announced,
    entry,
    written_publisher,
)

WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAGES = {
    "sign-in": "sign-in",
    "overview": "overview",
    "queue": "queue?agent=main&subscriber=sub2",
    "subscriber": "subscriber?agent=main&subscriber=sub2",
    "reset": "subscriber/reset?agent=main&subscriber=web-1&to=12",
    "content": "content?path=/site/news",
    "compare": "compare?path=/site&subscriber=sub2&show=/site/offers",
    "equal": "compare?path=/site&asked=1",
    "distributions": "distributions",
    "distribution": "distribution?agent=main&number=d2",
    "distribute": "distribute?paths=%2Fsite%2Fnews&deep=1",
    "releases": "releases",
    "release": "releases/send?release=id-christmas",
    "failures": "failures",
    "mend": "failures/redistribute",
    "commands": "commands",
    "audit": "audit",
    "live": "live",
    "journal": "journal?offset=41&bodies=1",
    "cleanup": "cleanup",
    "jobs": "jobs",
    "job": "jobs/7",
    "retry": "jobs/all/retry",
    "schedules": "schedules",
    "schedule": "schedule?name=packhorse.pipeline.archive",
    "pipeline": "pipeline",
    "topology": "topology",
    "clear": "queue/clear?agent=main&subscriber=sub2&up_to=42",
}


def written(site: ConsoleSite) -> None:
    """Let the publisher show something of everything."""
    away = {"length": None, "at_least": 12, "length_unknown": "AWAY", "lag_seconds": 90_000.0}
    site.publisher.shows(
        queue("web-1"),
        queue("web-2", "RUNNING", 3),
        blocked("sub2", 14),
        {**queue("archive", "STALE"), **away},
        queue("preview", "PAUSED", 1, errors=3),
    )
    rising: list[float | None] = [None, None, *(60.0 * minute for minute in range(28))]
    sawtooth: list[float | None] = [30.0 * (minute % 7) for minute in range(30)]
    site.publisher.answers["GET /queue-history"] = lags(
        **{"web-1": [0.0] * 30, "web-2": sawtooth, "sub2": rising}
    )
    site.publisher.answers["GET /queues/sub2/history"] = history(
        "sub2",
        [None if 10 < minute < 14 else 1.5 * minute**2 for minute in range(60)],
        length=[minute // 4 for minute in range(60)],
        rate=[max(0.0, 40.0 - minute) for minute in range(60)],
    )
    site.publisher.answers["GET /queues/sub2/clear"] = clear_bound(42, 2)
    page = site.publisher.answers["GET /queues/sub2"]
    page["entries"][1] = entry(
        42, "/content/dam/site/pictures/2026/november", deep_paths=["/site/news"]
    )
    page["entries"][2] = entry(43, paths=[f"/site/page-{number}" for number in range(9)])


def written_records(site: ConsoleSite) -> None:
    """Let it show distributions, error queues and commands as well."""
    answers = site.publisher.answers
    states = ("QUEUED", "PARTLY_DISTRIBUTED", "DISTRIBUTED", "DISTRIBUTED")
    rows = [
        distribution(f"d{number}", state=state, paths=[f"/site/page-{number}"])
        for number, state in enumerate(states, 1)
    ]
    rows[1]["deep_paths"] = ["/site"]
    answers["GET /distributions"] = {"distributions": rows, "next": None}
    at = {"stale": False, "attempts": 0, "reason": "", "next_attempt_at": None}
    answers["GET /distributions/d2"] = {
        **rows[1],
        "subscribers": [
            {**at, "subscriber": "web-1", "state": "IMPORTED", "imported_by": AT},
            {**at, "subscriber": "sub2", "state": "RETRYING", "attempts": 2, "reason": "disk full"}
            | {"since": AT},
            {**at, "subscriber": "preview", "state": "REMOVED_FAILED", "reason": "no such table"},
        ],
    }
    given_up = [failure(number) for number in (7, 8)]
    site.publisher.gave_up("preview", *given_up, failure(9, "OutOfMemory: 12 MiB"))
    rows = [
        command("RETRY", "SENT", subscriber="sub2", ended_at=None),
        command("CLEAR", subscriber="sub2", offset=41, removed=1),
        command("CLEAR", "REJECTED", subscriber="sub2", offset=9, reason="not editable"),
    ]
    answers["GET /commands"] = {"commands": rows, "next": None}
    failing = {"last_error": REASON, "attempts": 4, "blocked_since": AT, "next_attempt_at": AT}
    answers["GET /subscribers/sub2"] = announced("sub2", "BLOCKED", behind=14, **failing)
    answers["GET /subscribers/web-1"] = announced("web-1", "STOPPED")


def written_sending(site: ConsoleSite) -> None:
    """Let it answer a dry run, and show releases."""
    states = {"web-1": "IDLE", "sub2": "BLOCKED"}
    targets = [{"subscriber": name, "state": state, "length": 3} for name, state in states.items()]
    site.publisher.answers["POST /distribute/dry-run"] = dry_run(subscribers=targets)
    rows = [
        release("christmas", paths=["/site/home", "/site/news"], deep_paths=["/site/offers"]),
        release("spring", "DRAFT", at=None),
        release("sale", "FAILED", at=AT, reason="there is no node at /site/sale"),
        release("autumn", "SENT", at=AT),
    ]
    site.publisher.answers["GET /releases"] = {"agent": "main", "releases": rows, "next": None}
    site.publisher.answers["GET /releases/id-christmas"] = rows[0]


def written_events(site: ConsoleSite) -> None:
    """Let it say what happens."""
    done = {"subscriber": "web-1", "offset": 41, "package_id": "p41", "time": AT, "reason": ""}
    happened = [
        ("package", entry(41)),
        ("status", {**done, "status": "IMPORTED"}),
        ("status", {**done, "status": "REMOVED_FAILED", "reason": REASON, "subscriber": "sub2"}),
        ("distributed", {**entry(41), "state": "PARTLY_DISTRIBUTED"}),
        ("subscriber", {"subscriber": "sub2", "state": "BLOCKED", "offset": 40}),
    ]
    blocks = [f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in happened]
    site.publisher.answers["GET /events"] = "".join(blocks).encode()


def written_content(site: ConsoleSite) -> None:
    """Let it serve content too."""
    binary = {"digest": f"sha256:{'5f' * 32}", "length": 20_480, "media_type": "image/png"}
    properties = {
        "title": "News",
        "tags": ["today", "press"],
        "teaser": {"text": "What happened", "wide": True, "columns": 3},
    }
    node = {"path": "/site/news", "type": "page", "properties": properties}
    site.publisher.answers["GET /content/site/news"] = {**node, "binaries": {"picture": binary}}
    below = [{"path": f"/site/news/{name}", "type": "page"} for name in ("archive", "today")]
    site.publisher.answers["GET /children/site/news"] = {"children": below, "next": None}


def written_journal(site: ConsoleSite) -> None:
    """Let it show records of the journal, and cleanup runs."""
    page = {"name": "aemdistribution_package", "partition": 0, "partitions": 1}
    node = {"path": "/site/news", "type": "page", "properties": {"title": "News", "wide": True}}
    site.publisher.answers["GET /journal/topics/package/records"] = {
        **page,
        "oldest_offset": 10,
        "next_offset": 61,
        "records": [journal_record(41, nodes=[{**node, "binaries": {}}])],
    }
    run = {"origin": "schedule packhorse.cleanup", "requested_at": AT, "ended_at": AT, "kept": {}}
    removed = {"below the oldest": {"count": 12, "bytes": 30_000}}
    site.publisher.answers["GET /cleanup/runs"] = [
        {**run, "id": 8, "state": "SUCCEEDED", "dry_run": True, "removed": removed},
        {**run, "id": 7, "state": "FAILED", "dry_run": False, "removed": {}, "error": "no S3"},
    ]


def written_difference(site: ConsoleSite, there: WrittenPublisher) -> None:
    """Let one subscriber have something else than the author."""
    digests = {"/site": "1", "/site/news": "2", "/site/offers": "3"}
    for content, has in (
        (site.publisher, digests),
        (there, {**digests, "/site/offers": "x", "/site/old": "4"}),
    ):
        nodes = [{"path": path, "digest": has[path]} for path in sorted(has)]
        content.answers["GET /digests/site"] = {"nodes": nodes, "next": None}
    node = site.publisher.answers["GET /content/site/news"]
    before = {**node["properties"], "title": "Offers of before"}
    site.publisher.answers["GET /content/site/offers"] = node
    there.answers["GET /content/site/offers"] = {**node, "properties": before}


@contextmanager
def pictured_site() -> Iterator[ConsoleSite]:
    """Serve a console that shows something on each of its pages."""
    with (
        written_publisher() as publisher,
        written_publisher() as there,
        console_site(
            publisher,
            content_url=publisher.url,
            subscriber_urls={"sub2": there.url, "web-1": publisher.url},
            cleanup_url=publisher.url,
            jobs_urls={"author": publisher.url, "sub2": publisher.url},
            topology_urls={"author": publisher.url},
            pipeline_url=publisher.url,
        ) as site,
    ):
        for write in (written, written_records, written_sending, written_content, written_events):
            write(site)
        written_journal(site)
        written_work(site.publisher.answers)
        written_difference(site, there)
        answers = site.publisher.answers
        answers.update({name: _at_present(answer) for name, answer in answers.items()})
        yield site


def _at_present(document: Any, name: str = "") -> Any:
    """Return an answer whose moments are an hour old, or soon where something is to come."""
    if isinstance(document, dict):
        return {key: _at_present(value, key) for key, value in document.items()}
    if isinstance(document, list):
        return [_at_present(one, name) for one in document]
    to_come = timedelta(minutes=10 if name == "eta" or name.startswith("next_") else -60)
    moment = f"{datetime.now(UTC) + to_come:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(document, bytes):
        return document.replace(AT.encode(), moment.encode())
    return moment if document == AT else document


@contextmanager
def visited(
    browser: Browser, site: ConsoleSite, scheme: Literal["light", "dark"], width: int
) -> Iterator[Tab]:
    """Open a tab that has signed in."""
    size = {"width": width, "height": 800}
    with tab(browser, color_scheme=scheme, viewport=size) as opened:
        sign_in(opened, site.url, "admin")
        yield opened


def shown(opened: Tab, site: ConsoleSite, name: str) -> None:
    """Go to a page, and wait until its script has done what it does."""
    opened.page.goto(f"{site.url}/pages/{PAGES[name]}")
    if name == "live":
        opened.page.locator("[data-kind=subscriber]").first.wait_for()


def main(folder: Path) -> None:
    """Write a picture of each page in both themes and at two widths."""
    folder.mkdir(parents=True, exist_ok=True)
    with pictured_site() as site, chromium() as browser:
        for scheme, width in product(SCHEMES, WIDTHS):
            with visited(browser, site, scheme, width) as opened:
                for name in PAGES:
                    shown(opened, site, name)
                    target = folder / f"{name}-{scheme}-{width}.png"
                    opened.page.screenshot(path=target, full_page=True)
    (folder / "index.html").write_text(_index())


def _index() -> str:
    """Return a page with the pictures."""
    rows = []
    for name in PAGES:
        files = [f"{name}-{scheme}-{width}.png" for scheme, width in product(SCHEMES, WIDTHS)]
        pictures = [
            f'<a href="{one}"><img src="{one}" alt="{one}" height="300"></a>' for one in files
        ]
        rows.append(f"<h2>{name}</h2>{' '.join(pictures)}")
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>The console's pages</title>"
    return "\n".join([head, "<h1>The console's pages</h1>", *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
