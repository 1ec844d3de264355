"""The way to the pages of other services, which a visitor need not sign in to again."""

from contextlib import suppress

from fastapi import APIRouter, Response
from starlette.responses import RedirectResponse

from packhorse.client.errors import ClientError
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.pages.session import token_of
from packhorse.runtime.problems import Problem
from packhorse.runtime.validation import StrictRoute
from packhorse_services.console.frame.visit import PageVisit
from packhorse_services.console.parts import of

router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)


@router.get("/neighbours/{name}")
async def go_to_neighbour(name: str, visit: PageVisit) -> Response:
    """Lead on by a link that signs in once with the visitor's own token.

    Where the console can't reach the service, or its address is a proxy's own, a browser may: it
    is led to the page, and signs in there.
    """
    if isinstance(visit, Response):
        return visit
    parts, token = of(visit.request), token_of(visit.request)
    if name not in parts.neighbours:
        raise Problem(404)
    url = parts.neighbours[name]
    if token and name in parts.signing_in.urls:
        with suppress(ClientError):
            path = await parts.signing_in.client(name, token).sign_in_link()
            url = f"{parts.signing_in.urls[name]}{path}"
    return RedirectResponse(url, 303)
