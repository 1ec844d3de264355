"""What the pages work with; made once, found through the app."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fastapi import Request

from packhorse.runtime.feed import Streams
from packhorse.runtime.jwt_tokens import JwtVerifier
from packhorse.runtime.metrics import CONSOLE_EVENT_STREAMS, report
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.places import Places
from packhorse_services.console.audit_lines import RecentAudit
from packhorse_services.console.provider import IdentityProvider, ProviderSettings
from packhorse_services.console.settings import Settings
from packhorse_services.console.upstream import Remembered, Services

Kind = Literal["jobs", "topology", "pipeline"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_STREAMS = 50
"""Browsers that follow events: each takes one of the 100 connections to a publisher."""
PROVIDER_PAGE, PROVIDER_DONE = "sign-in/provider", "sign-in/provider/done"
"""Pages that lead to the identity provider, and back."""
_COMPARISONS = 4
"""Comparisons under way, one of a caller; each asks for up to 8 pages of digests at a time."""
_DOWNLOADS = 8
"""Binaries that are on their way, two of a caller; each takes 4 MiB of memory."""


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """The services that are asked.

    `publishers` are by the names of their agents; `contents` by subscribers' names, the author's
    by an empty one; `cleanup` has one with an empty name, or none. `compared` are the publishers
    over connections of their own, so that digests keep no other page waiting. `programs` are what
    tells of jobs, of the topology and of the pipeline's reports, each by names.
    `provider` is None where people have tokens only.
    """

    publishers: Services
    contents: Services
    cleanup: Services
    compared: Services
    comparisons: Places
    downloads: Places
    streams: Streams
    programs: Mapping[Kind, Services]
    provider: IdentityProvider | None
    audit: RecentAudit
    remembered: Remembered


def assemble(settings: Settings) -> ConsoleParts:
    """Make them; nothing connects yet."""
    cleanup = {"": settings.cleanup_url} if settings.cleanup_url else {}
    report("packhorse_console_")
    contents = {"": settings.content_url, **settings.subscriber_urls}
    contents = {name: url for name, url in contents.items() if url}
    return ConsoleParts(
        Services("publisher", settings.publisher_urls, settings.upstream_timeout_s),
        Services("content", contents, settings.upstream_timeout_s),
        Services("cleanup", cleanup, settings.upstream_timeout_s),
        Services("publisher", settings.publisher_urls, settings.upstream_timeout_s),
        Places("comparisons", _COMPARISONS, 1),
        Places("downloads", _DOWNLOADS, 2),
        Streams(CONSOLE_EVENT_STREAMS, _STREAMS),
        _programs(settings),
        _provider(settings) if settings.oidc_client_id else None,
        RecentAudit(),
        Remembered(),
    )


def _programs(settings: Settings) -> Mapping[Kind, Services]:
    urls: Mapping[Kind, Mapping[str, str]] = {
        "jobs": settings.jobs_urls,
        "topology": settings.topology_urls,
        "pipeline": {"": settings.pipeline_url} if settings.pipeline_url else {},
    }
    timeout_s = settings.upstream_timeout_s
    return {kind: Services(kind, named, timeout_s) for kind, named in urls.items()}


def _provider(settings: Settings) -> IdentityProvider:
    issuer, client = settings.jwt_issuer or "", settings.oidc_client_id
    pages = f"{settings.console_url.rstrip('/')}{PREFIX}"
    given = ProviderSettings(
        issuer,
        client,
        settings.oidc_client_secret.get_secret_value(),
        f"{pages}/{PROVIDER_DONE}",
        f"{pages}/sign-in",
        settings.oidc_scopes,
        settings.oidc_parameters,
    )
    return IdentityProvider(
        given, JwtVerifier(settings.jwks_url or "", issuer=issuer, audience=client)
    )


def of(request: Request) -> ConsoleParts:
    """Return the parts of the console that answers."""
    parts: ConsoleParts = request.app.state.parts
    return parts
