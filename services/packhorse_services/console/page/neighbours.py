"""The way to the pages of other services, which a visitor need not sign in to again."""

from fastapi import APIRouter, Response
from starlette.responses import RedirectResponse

from packhorse.client.errors import ClientError
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.pages.session import token_of
from packhorse.runtime.validation import StrictRoute
from packhorse_services.console.frame.visit import PageVisit
from packhorse_services.console.parts import of

router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)


@router.get("/neighbours/{name}")
async def go_to_neighbour(name: str, visit: PageVisit) -> Response:
    """Lead on by a link that signs in once with the visitor's own token.

    Where the console can't reach the service, a browser may: it is led to the form there.
    """
    if isinstance(visit, Response):
        return visit
    neighbours, token = of(visit.request).neighbours, token_of(visit.request)
    client = neighbours.client(name, token)
    try:
        path = await client.sign_in_link() if token else f"{PREFIX}/{name.lower()}"
    except ClientError:
        path = f"{PREFIX}/{name.lower()}"
    return RedirectResponse(f"{neighbours.urls[name]}{path}", 303)
