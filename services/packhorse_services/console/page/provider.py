"""Signing in with an account at the identity provider, for a console that has one."""

from typing import Annotated

from fastapi import Query, Request, Response
from starlette.responses import RedirectResponse

from packhorse.runtime import audit
from packhorse.runtime.jwt_tokens import KeysUnavailable
from packhorse.runtime.problems import Problem
from packhorse_services.console.frame.session import (
    Next,
    cookie_of,
    is_encrypted,
    sign_in_form,
    signed_in,
)
from packhorse_services.console.frame.visit import page_router
from packhorse_services.console.parts import of
from packhorse_services.console.provider import (
    PROVIDER_DONE,
    PROVIDER_PAGE,
    IdentityProvider,
    NotSignedIn,
    ProviderAway,
)
from packhorse_services.console.settings import PREFIX

router = page_router()

_COOKIE = "packhorse_signing_in"
_PATH = f"{PREFIX}/{PROVIDER_PAGE}"
_Text = Annotated[str, Query(max_length=4_000)]


@router.get(f"/{PROVIDER_PAGE}")
async def begin(request: Request, wanted: Next = "") -> Response:
    """Lead to the identity provider."""
    try:
        url, sealed = await _provider(request).begin(wanted)
    except ProviderAway as error:
        return sign_in_form(request, wanted, str(error))
    answer = RedirectResponse(url, 303)
    # Lax, not strict: it is the provider's page that leads back.
    name, path = cookie_of(request, _COOKIE, _PATH)
    secure = is_encrypted(request)
    answer.set_cookie(name, sealed, path=path, httponly=True, samesite="lax", secure=secure)
    return answer


@router.get(f"/{PROVIDER_DONE}")
async def finish(
    request: Request,
    state: _Text = "",
    code: _Text = "",
    iss: _Text = "",
    error: _Text = "",
) -> Response:
    """Sign in who comes back, if it is the browser that went."""
    audit.change(request)
    name, path = cookie_of(request, _COOKIE, _PATH)
    sealed, provider = request.cookies.get(name, ""), _provider(request)
    try:
        token, wanted = await provider.finish(
            sealed, state=state, code=code, issuer=iss, error=error
        )
    except (NotSignedIn, ProviderAway, KeysUnavailable) as refusal:
        answer = sign_in_form(request, "", str(refusal))
    else:
        answer = await signed_in(request, token, wanted, by_page="signed_in.html")
    secure = is_encrypted(request)
    answer.delete_cookie(name, path, secure=secure, httponly=True, samesite="lax")
    return answer


def _provider(request: Request) -> IdentityProvider:
    found = of(request).provider
    if found is None:
        raise Problem(404)
    return found
