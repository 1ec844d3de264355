"""Templates become pages: everything is escaped, and the policy lets nothing else in."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

import packhorse
from packhorse.runtime.problems import Problem

PREFIX = "/pages"
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


def _time(value: datetime | None) -> str:
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["time"] = _time
    made.globals["prefix"], made.globals["version"] = PREFIX, packhorse.__version__
    return made


_templates = _environment()
_static = {
    path.name: (path.read_bytes(), _TYPES[path.suffix])
    for path in (_FOLDER / "static").iterdir()
    if path.suffix in _TYPES
}

router = APIRouter(prefix=PREFIX, include_in_schema=False)


def rendered(template: str, **values: Any) -> str:
    """Return the text of a template; every value in it is escaped."""
    return _templates.get_template(template).render(**values)


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Return a page."""
    return HTMLResponse(rendered(template, **values), status, HEADERS)


@router.get("/static/{name}")
async def get_static_file(request: Request, name: str) -> Response:
    """Return a style sheet, a script or an icon; they hold nothing secret."""
    if name not in _static:
        raise Problem(404)
    content, media_type = _static[name]
    return tagged(request, content, media_type)


def tagged(request: Request, content: bytes, media_type: str) -> Response:
    """Return content with its ETag, or 304 when the caller has it."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "private, no-cache"}
    if tag == request.headers.get("if-none-match"):
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, media_type)
