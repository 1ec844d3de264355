"""Signing in to the pages: sessions, whose keys are in cookies that no script and no site else has.

See docs/adr/0027-pages.md and 0093-sessions.md. The cookie opens pages only: the API takes bearer
tokens as ever.
"""

from collections.abc import Callable
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from starlette.responses import RedirectResponse

from packhorse.runtime.auth import Authenticator, Principal, TokenScope, bearer, now_known, require
from packhorse.runtime.http import add_routes
from packhorse.runtime.problems import Problem
from packhorse.runtime.request_body import allow_body
from packhorse.runtime.validation import StrictRoute, refuse_unknown_query
from packhorse_services.console.frame import rendering
from packhorse_services.console.frame.kept_tokens import KeptTokens, TokenLimits
from packhorse_services.console.provider import PROVIDER_PAGE, RenewedToken
from packhorse_services.console.settings import PREFIX, Settings

SCOPE = TokenScope.QUEUES_READ
_COOKIE = "packhorse_overview"
_EACH, _MOST = 100, 2_000
"""Sessions of one caller, for a token may be several people's, and of all."""
_LINKS = TokenLimits(longest_s=600, idle_s=600, each=5, most=1_000)
_LONGEST_PATH = 2000
_MOST_FIELDS = 20
_LONGEST_FORM = 64 * 1024
"""Bytes; whoever signs in is not known yet, and what is encoded costs time."""
_FORM = "application/x-www-form-urlencoded"
_bounded = allow_body(_LONGEST_FORM)


router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)


def admit_visitors(app: FastAPI, settings: Settings, on_sign_out: Callable[[], None]) -> None:
    """Let people sign in to the pages of an app.

    `on_sign_out` is called when a session was ended by its visitor, or because of its token.
    """
    limits = TokenLimits(settings.session_longest_s, settings.session_idle_s, _EACH, _MOST)
    app.state.sessions = KeptTokens(limits, on_end=on_sign_out)
    app.state.links, app.state.settings = KeptTokens(_LINKS), settings
    add_routes(app, router)


async def visitor(request: Request) -> Principal:
    """Return who looks at a part of a page. Raises `Problem` 401 for nobody, 403 without the scope.

    A part asks again and again by itself, so it leaves a session as idle as it is.
    """
    authenticator: Authenticator = request.app.state.authenticator
    await _sessions(request).renew(_key(request))
    try:
        found = await authenticator.principal(token_of(request))
    except Problem as problem:
        if problem.status_code == 401:
            _sessions(request).forget(_key(request))
        raise
    now_known(request, found)
    _check(found, SCOPE)
    refuse_unknown_query(request)
    return found


async def allowed(request: Request, scope: TokenScope) -> Principal:
    """Return who asks for a page, or sends a form of one. Raises `Problem` 401, 403, 422.

    What acts has to depend on `posted` too: a cookie alone does not say which site has asked.
    """
    found = await visitor(request)
    _check(found, scope)
    _sessions(request).token(_key(request), used=True)
    return found


def _check(caller: Principal, scope: TokenScope) -> None:
    if not caller.may(scope):
        raise Problem(403, detail=f"this needs a token with the scope {scope}")


class SignInFirst(Exception):
    """A page is for those who have signed in; the text is the address of the form."""


async def visitor_or_sign_in(request: Request) -> Principal:
    """Return who looks at a page. Raises `SignInFirst`, which is answered with the way there."""
    try:
        return await allowed(request, SCOPE)
    except Problem as problem:
        if problem.status_code not in (401, 403):
            raise
    wanted = quote(f"{request.url.path}?{request.url.query}".rstrip("?"), safe="/")
    raise SignInFirst(f"{PREFIX}/sign-in?next={wanted}")


async def posted(request: Request) -> dict[str, str]:
    """Return the fields of a form that one of our own pages has sent. Raises `Problem`."""
    if not _is_from_here(request):
        raise Problem(403, detail="this form must be sent from a page of this service")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Problem(415, detail=f"send the form as {_FORM}")
    await _bounded(request)
    try:
        fields = parse_qs((await request.body()).decode(), max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Problem(400, detail="the form can't be read") from None
    return {name: values[0] for name, values in fields.items()}


Form = Annotated[dict[str, str], Depends(posted)]
Caller = Annotated[Principal, Depends(require(SCOPE))]
Ticket = Annotated[str, Query(max_length=100)]
Next = Annotated[str, Query(alias="next", max_length=_LONGEST_PATH)]


@router.get("/static/{name}")
async def get_static_file(request: Request, name: str) -> Response:
    """Return a style sheet, a script or an icon; they hold nothing secret."""
    if name not in rendering.STATIC:
        raise Problem(404)
    content, media_type = rendering.STATIC[name]
    return rendering.tagged(request, content, media_type)


@router.get("/sign-in")
async def show_sign_in(request: Request, wanted: Next = "") -> Response:
    """Show the form; `next` is the page to go on to."""
    return sign_in_form(request, wanted)


@router.post("/sign-in")
async def sign_in(request: Request, form: Form) -> Response:
    """Take a token into the cookie, and go on to the page that was wanted."""
    return await signed_in(request, form.get("token", ""), form.get("next", ""))


@router.post("/sign-out", dependencies=[Depends(posted)])
async def sign_out(request: Request) -> Response:
    """End the session: its key is good no more, wherever it was copied to.

    Where the token came from elsewhere a page leads there: no form may send a browser away.
    """
    source = _sessions(request).forget(_key(request))
    there = await source.way_out() if source else ""
    if there:
        answer = rendering.page("signed_out.html", there=there)
    else:
        answer = RedirectResponse(f"{PREFIX}/sign-in", 303)
    name, path = cookie_of(request, _COOKIE, PREFIX)
    encrypted = is_encrypted(request)
    answer.delete_cookie(name, path, secure=encrypted, httponly=True, samesite="strict")
    return answer


# A link signs a browser in once, for who has a token elsewhere. It is a page with one button: a
# program that only looks at links uses none up, and no other site can sign a browser in by one.
@router.post("/sign-in-links")
async def make_sign_in_link(request: Request, caller: Caller) -> dict[str, str]:
    """Return the path of a page that signs a browser in with the caller's own token, once."""
    ticket = request.app.state.links.keep(bearer(request), caller.name)
    return {"path": f"{PREFIX}/sign-in/link?ticket={ticket}"}


@router.get("/sign-in/link")
async def show_sign_in_link(ticket: Ticket = "") -> Response:
    """Show the button that signs in."""
    return rendering.page("sign_in_link.html", ticket=ticket)


@router.post("/sign-in/link")
async def follow_sign_in_link(request: Request, form: Form) -> Response:
    """Sign in with the token of the link."""
    token = request.app.state.links.take(form.get("ticket", ""))
    if not token and not request.app.state.authenticator.is_off:
        return rendering.page("sign_in_link_used.html", 410)
    return await signed_in(request, token)


async def signed_in(
    request: Request, token: str | RenewedToken, wanted: str = "", by_page: str = ""
) -> Response:
    """Return the way to the page `wanted` with a new session, or the form again.

    Only for requests that `posted` has let through, or whose browser has begun it: no other site
    may choose who somebody is. `by_page` is a page that leads on: a browser that comes from
    another site sends no strict cookie where it is redirected to.
    """
    source = None if isinstance(token, str) else token
    token = token.strip() if isinstance(token, str) else await token.current()
    wanted = inside(wanted)
    authenticator: Authenticator = request.app.state.authenticator
    try:
        found = await authenticator.principal(token)
    except Problem as problem:
        if problem.status_code != 401:
            raise
        return sign_in_form(request, wanted, "No such token, or it has expired.")
    now_known(request, found)
    if not found.may(SCOPE):
        wrong = f"This token does not have the scope {SCOPE}."
        return sign_in_form(request, wanted, wrong)
    answer = rendering.page(by_page, next=wanted) if by_page else RedirectResponse(wanted, 303)
    key = _sessions(request).keep(token, found.name, source)
    _begin_session(request, answer, key)
    return answer


def sign_in_form(request: Request, wanted: str, wrong: str = "") -> Response:
    """Return the form, and why nobody is signed in yet."""
    way = f"{PREFIX}/{PROVIDER_PAGE}" if _settings(request).oidc_client_id else ""
    values = {"next": inside(wanted), "wrong": wrong, "other_way": way}
    return rendering.page("sign_in.html", 401 if wrong else 200, **values)


def _begin_session(request: Request, answer: Response, key: str) -> None:
    """Give the browser a key that nobody knew before, and end the session that it had."""
    _sessions(request).forget(_key(request))
    name, path = cookie_of(request, _COOKIE, PREFIX)
    answer.set_cookie(
        name,
        key,
        path=path,
        httponly=True,
        samesite="strict",
        secure=is_encrypted(request),
    )


def token_of(request: Request) -> str | None:
    """Return the token with which a visitor has signed in; None without a session."""
    return _sessions(request).token(_key(request)) or None


def has_ended(request: Request) -> bool:
    """Return whether the session of a request under way is over."""
    authenticator: Authenticator = request.app.state.authenticator
    return token_of(request) is None and not authenticator.is_off


def _sessions(request: Request) -> KeptTokens:
    sessions: KeptTokens = request.app.state.sessions
    return sessions


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def cookie_of(request: Request, name: str, path: str) -> tuple[str, str]:
    """Return a cookie's name and path: over https a name that no other host can set."""
    return (f"__Host-{name}", "/") if _settings(request).is_encrypted else (name, path)


def _key(request: Request) -> str:
    name, _ = cookie_of(request, _COOKIE, PREFIX)
    return request.cookies.get(name, "")


def _is_from_here(request: Request) -> bool:
    """Return whether the browser says so by one of these headers, which no page can forge."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", "").partition("://")[2]
    return bool(origin) and origin == request.headers.get("host", "")


def is_encrypted(request: Request) -> bool:
    """Return whether the browser's own connection is, whatever a proxy makes of it."""
    origin = request.headers.get("origin", "")
    return (
        _settings(request).is_encrypted
        or origin.startswith("https://")
        or request.url.scheme == "https"
    )


def inside(wanted: str) -> str:
    """Return the path of a page of ours: the form sends nobody elsewhere."""
    ours = wanted.startswith(f"{PREFIX}/") and wanted.isprintable() and "\\" not in wanted
    return wanted if ours else f"{PREFIX}/overview"
