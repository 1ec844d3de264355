"""What the pages work with; made once, found through the app."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fastapi import Request

from packhorse.runtime.feed import Streams
from packhorse.runtime.metrics import CONSOLE_EVENT_STREAMS, report
from packhorse.runtime.places import Places
from packhorse_services.console.audit_lines import RecentAudit
from packhorse_services.console.provider import IdentityProvider
from packhorse_services.console.settings import Settings
from packhorse_services.console.upstream import Remembered, Services

Kind = Literal["jobs", "topology", "pipeline", "cleanup"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_STREAMS = 50
"""Browsers that follow events: each takes one of the 100 connections to a publisher."""
_COMPARISONS = 4
"""Comparisons under way, one of a caller; each asks for up to 8 pages of digests at a time."""
_DOWNLOADS = 8
"""Binaries that are on their way, two of a caller; each takes 4 MiB of memory."""


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """The services that are asked.

    `publishers` are by the names of their agents; `contents` by subscribers' names, the author's
    by an empty one. `compared` are the publishers over connections of their own, so that digests
    keep no other page waiting. `programs` are what tells of jobs, of the topology, of the
    pipeline's reports and of the journal, each by names; of the last two there is one, or none.
    `provider` is None where people have tokens only.
    """

    publishers: Services
    contents: Services
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
    report("packhorse_console_")
    contents = {"": settings.content_url, **settings.subscriber_urls}
    contents = {name: url for name, url in contents.items() if url}
    return ConsoleParts(
        Services("publisher", settings.publisher_urls, settings.upstream_timeout_s),
        Services("content", contents, settings.upstream_timeout_s),
        Services("publisher", settings.publisher_urls, settings.upstream_timeout_s),
        Places("comparisons", _COMPARISONS, 1),
        Places("downloads", _DOWNLOADS, 2),
        Streams(CONSOLE_EVENT_STREAMS, _STREAMS),
        _programs(settings),
        IdentityProvider(settings) if settings.oidc_client_id else None,
        RecentAudit(),
        Remembered(),
    )


def _programs(settings: Settings) -> Mapping[Kind, Services]:
    urls: Mapping[Kind, Mapping[str, str]] = {
        "jobs": settings.jobs_urls,
        "topology": settings.topology_urls,
        "pipeline": {"": settings.pipeline_url} if settings.pipeline_url else {},
        "cleanup": {"": settings.cleanup_url} if settings.cleanup_url else {},
    }
    timeout_s = settings.upstream_timeout_s
    return {kind: Services(kind, named, timeout_s) for kind, named in urls.items()}


def of(request: Request) -> ConsoleParts:
    """Return the parts of the console that answers."""
    parts: ConsoleParts = request.app.state.parts
    return parts
