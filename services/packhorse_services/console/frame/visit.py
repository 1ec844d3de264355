"""Who looks at a page, with what rights, and the page that is answered."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import NoAnswer, Refused
from packhorse.client.exchange import ServiceName
from packhorse.runtime import audit
from packhorse.runtime.auth import Authenticator, Principal, TokenScope
from packhorse.runtime.problems import Problem
from packhorse.runtime.validation import StrictRoute
from packhorse_services.console.frame import rendering
from packhorse_services.console.frame.rendering import address
from packhorse_services.console.frame.session import (
    SCOPE,
    Form,
    SignInFirst,
    allowed,
    token_of,
    visitor,
    visitor_or_sign_in,
)
from packhorse_services.console.parts import KINDS, Kind, of
from packhorse_services.console.settings import PREFIX

T = TypeVar("T")
Route = TypeVar("Route", bound=Callable[..., Awaitable[Response]])

_PART = "part of a page"

_NAMED = (
    *("agent", "subscriber", "release", "action", "deep", "at", "to", "offset", "count"),
    *("state", "topic", "queue", "id", "path", "where", "filter", "paths", "up_to"),
)
"""Fields of forms that say what an act is about; the long ones last."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a visitor is offered. The publisher decides again, by the same token."""

    operate: bool
    clear: bool
    distribute: bool
    read: bool
    jobs: bool
    admin: bool


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody who has signed in."""

    request: Request
    who: Principal

    @property
    def rights(self) -> Rights:
        """What the visitor's token allows."""
        return Rights(
            operate=self.who.may(TokenScope.SUBSCRIBERS_OPERATE),
            clear=self.who.may(TokenScope.QUEUES_CLEAR),
            distribute=self.who.may(TokenScope.DISTRIBUTE),
            read=self.who.may(TokenScope.CONTENT_READ),
            jobs=self.who.may(TokenScope.JOBS_OPERATE),
            admin=self.who.may(TokenScope.ADMIN),
        )

    @property
    def agents(self) -> list[str]:
        """The publisher agents that the visitor may deal with."""
        return [one for one in of(self.request).publishers.urls if self.who.may_deal_with(one)]

    def agent(self, requested: str) -> str:
        """Return the agent of a page: the first one where none is asked for."""
        return requested or next(iter(self.agents), "")

    def publisher(self, agent: str) -> AsyncClient:
        """Return a client that asks with the visitor's own token."""
        return of(self.request).publishers.client(agent, token_of(self.request))

    async def remembered(
        self, key: tuple[object, ...], ask: Callable[[], Awaitable[T]]
    ) -> T | None:
        """Return what a service says of the past, which is asked for once for all visitors.

        Only behind an answer to the visitor's own token that shows the present.
        """
        return await of(self.request).remembered.get(key, ask)

    def publisher_url(self, agent: str) -> str:
        """Return the address that the console asks, as the commands on a page name it."""
        return of(self.request).publishers.urls.get(agent, "")

    @property
    def content_urls(self) -> Mapping[str, str]:
        """Where content can be looked at: the author by an empty name, subscribers by theirs."""
        return of(self.request).contents.urls

    def content(self, at: str) -> AsyncClient:
        """Return a client of the content at a subscriber, or with an empty name at the author."""
        return of(self.request).contents.client(at, token_of(self.request))

    def keeping_acts(self) -> dict[str, tuple[ServiceName, AsyncClient, str]]:
        """Return the services that keep acts, by what they are called: kind, client, own name."""
        found: dict[str, tuple[ServiceName, AsyncClient, str]] = {}
        if "" in self.content_urls:
            found["the author's content"] = ("content", self.content(""), "")
        for name in self.served("jobs"):
            found[f"the jobs of {name}"] = ("jobs", self.service("jobs", name)[0], name)
        return found

    def served(self, kind: Kind) -> Mapping[str, str]:
        """Return the addresses of the services of a kind, by name."""
        return of(self.request).programs[kind].urls

    def service(self, kind: Kind, at: str) -> tuple[AsyncClient, str]:
        """Return a client of a service and its address; with an empty name of the first one.

        Raises `Problem` 404.
        """
        name = at or next(iter(self.served(kind)), "")
        client = of(self.request).programs[kind].client(name, token_of(self.request))
        return client, self.served(kind)[name]

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page in the frame that all pages have."""
        return rendering.page(
            template,
            status,
            who=self.who.name,
            may=self.rights,
            has={kind: bool(of(self.request).programs[kind].urls) for kind in KINDS},
            query=self.request.url.query,
            **values,
        )

    def part(self, template: str, **values: Any) -> Response:
        """Return what changes of a page."""
        return rendering.part(self.request, template, may=self.rights, **values)

    def followed(self, name: str, **values: Any) -> Response:
        """Return a page of `followed_page`, or the part of it that is asked for."""
        if _is_part(self.request):
            return self.part(f"{name}_content.html", **values)
        return self.page(f"{name}.html", **values)


def page_router() -> APIRouter:
    """Return a router for pages."""
    return APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)


def followed_page(router: APIRouter, path: str) -> Callable[[Route], Route]:
    """Return a decorator: the page is at `path`, and at `content` below it what changes of it.

    A part asks again and again by itself: it answers 304 when nothing has changed, renews no
    session and leads nobody to the form.
    """

    def at_both(show: Route) -> Route:
        router.get(f"{path}/content", name=_PART)(show)
        router.get(path)(show)
        return show

    return at_both


def _is_part(request: Request) -> bool:
    return bool(request.scope["route"].name == _PART)


async def _visit(request: Request) -> Visit:
    return Visit(request, await visitor(request))


async def _visit_of_page(request: Request) -> Visit:
    found = visitor if _is_part(request) else visitor_or_sign_in
    return Visit(request, await found(request))


PartVisit = Annotated[Visit, Depends(_visit)]
PageVisit = Annotated[Visit, Depends(_visit_of_page)]


def acting(scope: TokenScope) -> Callable[..., Awaitable[Visit]]:
    """Return a dependency: a form of our own page, sent by somebody with this scope."""

    async def visit(request: Request, form: Form) -> Visit:
        audit.note(request, form=_about(form))
        return Visit(request, await allowed(request, scope))

    return visit


def _about(form: Mapping[str, str]) -> str:
    given = {name: ", ".join(form[name].splitlines()) for name in _NAMED if form.get(name)}
    return ", ".join(f"{name} {value}" for name, value in given.items())


def back_to(page: str, **parameters: object) -> Response:
    """Return the way back to a page once something is done."""
    return RedirectResponse(address(page, **parameters), 303)


def may_be_done(error: Exception) -> bool:
    """Return whether what was asked may be done all the same; a proxy's 502 or 504 says nothing."""
    return isinstance(error, NoAnswer) or (isinstance(error, Refused) and error.status >= 500)


async def not_done(request: Request, error: Exception) -> Response:
    """Return the page that says what another service has refused, or that it does not answer."""
    status = error.status if isinstance(error, Refused) else 409
    said, look = str(error), "Try again."
    if request.method == "POST":
        look = "What was asked may be done: look before you ask again."
    if isinstance(error, NoAnswer):
        status, look = 503, f"See whether the service runs there. {look}"
    if may_be_done(error):
        said = f"{said}\n{look}"
    return await not_done_page(request, status, said)


def show_problems(app: FastAPI) -> None:
    """Let who goes to a page with a browser read a problem as a page; the rest get it as ever.

    Who has not signed in is led to the form.
    """
    app.add_exception_handler(SignInFirst, _to_form)
    handlers: dict[Any, Any] = app.exception_handlers
    for kind in (HTTPException, RequestValidationError):
        handlers[kind] = _as_page(handlers[kind])


async def _to_form(_request: Request, error: Exception) -> Response:
    return RedirectResponse(str(error), 303)


def _as_page(respond: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        problem = await respond(request, error)
        by_browser = "text/html" in request.headers.get("accept", "")
        if not (by_browser and request.url.path.startswith(f"{PREFIX}/")):
            return problem
        said = _said(json.loads(bytes(problem.body)))
        page = await not_done_page(request, problem.status_code, said)
        for name, value in problem.headers.items():
            page.headers.setdefault(name, value)
        return page

    return answer


def _said(problem: Mapping[str, Any]) -> str:
    wrong = [f"{one['pointer']}: {one['detail']}" for one in problem.get("errors", ())]
    more = wrong or [problem["detail"]] if "detail" in problem else []
    return "\n".join([f"{problem['title']} ({problem['status']})", *more])


async def not_done_page(request: Request, status: int, said: str) -> Response:
    """Return the page, in the frame for who is signed in; 401 is a session that is over."""
    heading = "Not done" if request.method == "POST" else "Not shown"
    who = None if status == 401 else await _known(request)
    if who is None:
        shown = {"said": said, "heading": heading, "signed_out": status == 401}
        return rendering.page("not_done.html", status, **shown)
    return Visit(request, who).page("not_done_framed.html", status, said=said, heading=heading)


async def _known(request: Request) -> Principal | None:
    """Return who is signed in, whatever else is wrong with a request; None for nobody."""
    authenticator: Authenticator = request.app.state.authenticator
    try:
        found = await authenticator.principal(token_of(request))
    except Problem:
        return None
    return found if found.may(SCOPE) else None
