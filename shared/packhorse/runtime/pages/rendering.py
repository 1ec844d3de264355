"""Templates become pages: everything is escaped, and the policy lets nothing else in."""

import hashlib
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

import packhorse

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


class Pages:
    """The pages of one service: its own templates, and what the pages of all services have."""

    def __init__(self, folder: Path, home: str) -> None:
        """`folder` holds `templates`; `home` is the path of the first page, below `PREFIX`."""
        self.home = home
        self.templates = _environment(folder / "templates")
        self.static = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in (_FOLDER / "static").iterdir()
            if path.suffix in _TYPES
        }

    def rendered(self, template: str, **values: Any) -> str:
        """Return the text of a template; every value in it is escaped."""
        return self.templates.get_template(template).render(**values)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        return HTMLResponse(self.rendered(template, **values), status, HEADERS)

    def part(self, request: Request, template: str, **values: Any) -> Response:
        """Return what changes of a page with its ETag, or 304 when the caller has it."""
        content = self.rendered(template, **values).encode("utf-8", "replace")
        return tagged(request, content, "text/html; charset=utf-8")


def tagged(request: Request, content: bytes, media_type: str) -> Response:
    """Return content with its ETag, or 304 when the caller has it."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "private, no-cache"}
    if tag == request.headers.get("if-none-match"):
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, media_type)


def _environment(folder: Path) -> Environment:
    made = Environment(
        loader=FileSystemLoader([folder, _FOLDER / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["prefix"], made.globals["version"] = PREFIX, packhorse.__version__
    return made
