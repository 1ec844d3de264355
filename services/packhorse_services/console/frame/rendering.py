"""Templates become pages; how states, times and amounts look in them.

Everything is escaped, and the policy lets nothing else in.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

import packhorse
from packhorse.client.exchange import Document
from packhorse.jobs.scheduling.timing import period_text
from packhorse.runtime import entity_tags
from packhorse.runtime.entity_tags import EntityTags
from packhorse_services.console.frame.states import look_of
from packhorse_services.console.settings import PREFIX

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    # Not `no-referrer`, as elsewhere: browsers would send our forms with the origin `null`.
    "Referrer-Policy": "same-origin",
}
_FOLDER = Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATIC = {
    path.name: (path.read_bytes(), _TYPES[path.suffix])
    for path in (_FOLDER / "static").iterdir()
    if path.suffix in _TYPES
}
TEMPLATES = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

_DURATIONS = ((90.0, 1.0, "s"), (5_400.0, 60.0, "min"), (172_800.0, 3_600.0, "h"))
_DAY_S = 86_400.0
_LONGEST_SAID = 200
_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def rendered(template: str, **values: Any) -> str:
    """Return the text of a template; every value in it is escaped."""
    return TEMPLATES.get_template(template).render(**values)


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Return a page."""
    return HTMLResponse(rendered(template, **values), status, HEADERS)


def part(request: Request, template: str, **values: Any) -> Response:
    """Return what changes of a page with its ETag, or 304 when the caller has it."""
    content = rendered(template, **values).encode("utf-8", "replace")
    return tagged(request, content, "text/html; charset=utf-8")


def tagged(request: Request, content: bytes, media_type: str) -> Response:
    """Return content with its ETag, or 304 when the caller has it."""
    known = EntityTags.parse(request.headers.get("if-none-match", ""), weak=True)
    answer = entity_tags.tagged(content, known, media_type)
    answer.headers.update(HEADERS)
    return answer


def address(page: str, **parameters: object) -> str:
    """Return the address of a page below the prefix; what is empty is left out."""
    given = {name: value for name, value in parameters.items() if value not in ("", None)}
    return f"{PREFIX}/{page}" + (f"?{urlencode(given)}" if given else "")


@dataclass(frozen=True)
class PageAddress:
    """What a page is asked for: fields of the query, with defaults, and the `page` itself."""

    page: ClassVar[str]

    def url(self, page: str = "", **other: object) -> str:
        """Return the address of this page, or of another one; `other` replaces and adds."""
        return address(page or self.page, **{**asdict(self), **other})


def utc_moment(text: str) -> datetime | None:
    """Return a moment of a form, None for an empty one. Raises `ValueError` for what is none."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time such as 2026-11-25T14:00, in UTC") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _duration(seconds: float | None) -> str:
    """Return a number of seconds as its reader would say it."""
    if seconds is None:
        return "–"
    for limit, size, unit in _DURATIONS:
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / _DAY_S:.0f} d"


def _size(count: int) -> str:
    for size, unit in _SIZES:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _figure(value: float) -> str:
    """Return a mean: with a decimal where it is small."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _short(moment: str | None) -> str:
    """Return a moment as it is shown until the script says how long ago it was."""
    found = _parsed(moment)
    return f"{found:%d %b %H:%M:%S}" if found else moment or ""


def _exact(moment: str | None) -> str:
    found = _parsed(moment)
    return f"{found:%Y-%m-%d %H:%M:%S} UTC" if found else moment or ""


def _parsed(moment: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(moment or "").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _seconds(value: float | None) -> str:
    """Return how long something took on average."""
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _says(job: Document) -> str:
    """Return how far a job is, or what its last attempt said, in one line."""
    if job["state"] != "ACTIVE":
        return _cut(job["result_message"])
    done = job["progress"]
    steps = f" of {done['steps']}" if done["steps"] else ""
    step = f"{done['step']}{steps}" if done["step"] or steps else ""
    return _cut(": ".join(part for part in (step, done["message"]) if part))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SAID else f"{text[:_LONGEST_SAID]}…"


def _when(schedule: Document) -> str:
    """Return when a schedule is due, in a few words."""
    if schedule["cron"]:
        return f"{schedule['cron']} ({schedule['time_zone']})"
    if schedule["period_s"]:
        return f"every {period_text(timedelta(seconds=schedule['period_s']))}"
    return "once"


def _shown_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def digest_of(rows: Iterable[tuple[Any, ...]]) -> str:
    """Return what two lists share exactly when they have the same rows, in whatever order."""
    return hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()


TEMPLATES.filters.update(
    duration=_duration,
    figure=_figure,
    size=_size,
    short=_short,
    exact=_exact,
    look=look_of,
    seconds=_seconds,
    says=_says,
    when=_when,
    shown_json=_shown_json,
)
TEMPLATES.globals.update(address=address, prefix=PREFIX, version=packhorse.__version__)
