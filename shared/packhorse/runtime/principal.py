"""Callers and what they may do."""

import enum
from dataclasses import dataclass


class TokenScope(enum.StrEnum):
    """What a token may allow; `admin` implies all."""

    CONTENT_READ = "content:read"
    CONTENT_WRITE = "content:write"
    DISTRIBUTE = "distribute"
    QUEUES_READ = "queues:read"
    QUEUES_CLEAR = "queues:clear"
    SUBSCRIBERS_OPERATE = "subscribers:operate"
    JOBS_OPERATE = "jobs:operate"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `roots` are the paths at and below which it may act; none of them: nowhere.

    `agents` are the publisher agents that it may deal with; None: all of them.
    """

    name: str
    scopes: frozenset[str]
    roots: tuple[str, ...] = ("/",)
    agents: tuple[str, ...] | None = None

    def may(self, scope: str) -> bool:
        """Return whether the caller has `scope`."""
        return scope in self.scopes or TokenScope.ADMIN in self.scopes

    def may_deal_with(self, agent: str) -> bool:
        """Return whether the caller may use the service of a publisher agent."""
        return self.agents is None or agent in self.agents


def is_root(path: str) -> bool:
    """Return whether `path` can be a root: `/`, or absolute with no empty, `.` or `..` segment."""
    if path == "/":
        return True
    first, *segments = path.split("/")
    return not first and bool(segments) and not {"", ".", ".."} & set(segments)


CALLER = "packhorse.caller"
"""Key of the caller, a `Principal`, in the ASGI scope; it is there once the caller is known."""

ANYBODY = Principal("anonymous", frozenset({TokenScope.ADMIN}))
"""The caller where authentication is off."""
