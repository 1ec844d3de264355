"""Callers and what they may do."""

import enum
from dataclasses import dataclass


class Scope(enum.StrEnum):
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
        """Tell whether the caller has `scope`."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def may_deal_with(self, agent: str) -> bool:
        """Tell whether the caller may use the service of a publisher agent."""
        return self.agents is None or agent in self.agents


ANYBODY = Principal("anonymous", frozenset({Scope.ADMIN}))
"""The caller where authentication is off."""
