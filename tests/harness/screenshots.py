"""Pictures of the console's pages to look at: `python -m tests.harness.screenshots FOLDER`."""

import sys
from pathlib import Path

from tests.harness.browser import chromium, tab
from tests.harness.console import (
    AT,
    ConsoleSite,
    blocked,
    console_site,
    distribution,
    entry,
    failure,
    queue,
)

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
PAGES = {
    "overview": "overview",
    "queue": "queue?agent=main&subscriber=sub2",
    "distributions": "distributions",
    "distribution": "distribution?agent=main&number=d2",
    "failures": "failures",
    "mend": "failures/redistribute",
    "commands": "commands",
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
    answers["GET /distributions"] = {"distributions": rows, "next": "/distributions?cursor=c"}
    at = {"stale": False, "attempts": 0, "reason": "", "next_attempt_at": None}
    answers["GET /distributions/d2"] = {
        **rows[1],
        "subscribers": [
            {**at, "subscriber": "web-1", "state": "IMPORTED"},
            {**at, "subscriber": "sub2", "state": "RETRYING", "attempts": 2, "reason": "disk full"},
            {**at, "subscriber": "preview", "state": "REMOVED_FAILED", "reason": "no such table"},
        ],
    }
    given_up = [failure(number) for number in (7, 8)]
    site.publisher.gave_up("preview", *given_up, failure(9, "OutOfMemory: 12 MiB"))
    command = {"subscriber": "sub2", "issued_by": "anna", "issued_at": AT, "ended_at": None}
    answers["GET /commands"] = {
        "commands": [
            {**command, "command_id": state, "kind": kind, "state": state, **more}
            for kind, state, more in (
                ("RETRY", "SENT", {"offset": None, "removed": None, "reason": ""}),
                ("CLEAR", "APPLIED", {"offset": 41, "removed": 1, "reason": "", "ended_at": AT}),
                ("CLEAR", "REJECTED", {"offset": 9, "removed": None, "reason": "not editable"}),
            )
        ],
        "next": None,
    }


def main(folder: Path) -> None:
    """Write a picture of each page in both themes and at two widths."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        console_site(
            jobs_page_url="http://127.0.0.1:1/", topology_page_url="http://127.0.0.1:1/"
        ) as site,
        chromium() as browser,
    ):
        written(site)
        written_records(site)
        for scheme in SCHEMES:
            for width in WIDTHS:
                with tab(
                    browser, color_scheme=scheme, viewport={"width": width, "height": 800}
                ) as opened:
                    opened.page.goto(f"{site.url}/pages/sign-in")
                    opened.page.screenshot(path=folder / f"sign-in-{scheme}-{width}.png")
                    opened.page.fill("#token", "operator")
                    opened.page.click("main button")
                    for name, path in PAGES.items():
                        opened.page.goto(f"{site.url}/pages/{path}")
                        target = folder / f"{name}-{scheme}-{width}.png"
                        opened.page.screenshot(path=target, full_page=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
