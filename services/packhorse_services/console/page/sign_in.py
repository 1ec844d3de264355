"""A page that signs a browser in once: for who has a token in a terminal, and a browser beside it.

Who has a token asks for a link over HTTP, with that token. The link is a page with one button: a
program that only looks at links uses none up, and no other site can sign a browser in by one.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from packhorse.runtime.auth import Principal, require
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.pages.session import SCOPE, Form, signed_in
from packhorse.runtime.validation import StrictRoute
from packhorse_services.console.frame.rendering import PAGES
from packhorse_services.console.parts import of

router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)

Caller = Annotated[Principal, Depends(require(SCOPE))]
Ticket = Annotated[str, Query(max_length=100)]


@router.post("/sign-in-links")
async def make_sign_in_link(request: Request, caller: Caller) -> dict[str, str]:
    """Return the path of a page that signs a browser in with the caller's own token, once."""
    token = request.headers.get("authorization", "").partition(" ")[2].strip()
    return {"path": f"{PREFIX}/sign-in/link?ticket={of(request).links.keep(token, caller.name)}"}


@router.get("/sign-in/link")
async def show_sign_in_link(ticket: Ticket = "") -> Response:
    """Show the button that signs in."""
    return PAGES.page("sign_in_link.html", ticket=ticket)


@router.post("/sign-in/link")
async def follow_sign_in_link(request: Request, form: Form) -> Response:
    """Sign in with the token of the link."""
    if request.app.state.authenticator.is_off:
        return await signed_in(request, PAGES, "")
    token = of(request).links.take(form.get("ticket", ""))
    if not token:
        return PAGES.page("sign_in_link_used.html", 410)
    return await signed_in(request, PAGES, token)
