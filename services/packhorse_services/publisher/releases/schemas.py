"""Releases as HTTP shows them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from packhorse.runtime.validation import StrictBody
from packhorse_services.publisher.distributions.schemas import (
    AT,
    MAX_PATHS,
    MAX_TARGETS,
    PRODUCER_NAME,
    ActionName,
    DistributionDocument,
    Links,
    MomentName,
    Path,
    TargetName,
)
from packhorse_services.publisher.outbox.release_rows import Release
from packhorse_services.publisher.queues.schemas import TARGETS

ReleaseStateName = Literal["DRAFT", "SCHEDULED", "SENT", "FAILED", "CANCELLED"]
STATE: Any = Field(
    description="DRAFT: it has no moment. SCHEDULED: it goes out at its moment, or as soon after "
    "it as `reason` is over. SENT: it is the package `package_id`, whose distribution says the "
    "rest. FAILED: it could not be sent, for `reason`; with another moment it is SCHEDULED again, "
    "and changed without one it is a DRAFT. CANCELLED: it does not go out"
)


ReleaseName = Annotated[str, Field(pattern=PRODUCER_NAME)]
Paths = Annotated[list[Path], Field(max_length=MAX_PATHS)]
Targets = Annotated[list[TargetName], Field(max_length=MAX_TARGETS)]


class ReleaseBody(StrictBody):
    """A set of paths that goes out together, in one package."""

    name: ReleaseName = Field(description="Of one open release at a time")
    action: ActionName = Field(default="ADD", description="The same for all paths")
    paths: Paths = Field(default_factory=list, description="Nodes, each without what is below")
    deep_paths: Paths = Field(default_factory=list, description="Nodes with all that is below")
    targets: Targets = Field(default_factory=list, description=TARGETS)
    at: MomentName | None = Field(default=None, description=f"{AT}. Without one it is a DRAFT")


class ReleasePatch(StrictBody):
    """What is to be another way; what is left out stays. The release goes out in your name then."""

    at: MomentName | None = Field(default=None, description=f"{AT}. null: it is a DRAFT again")
    add_paths: Paths = Field(default_factory=list)
    add_deep_paths: Paths = Field(default_factory=list)
    remove_paths: Paths = Field(
        default_factory=list, description="Taken out, of the paths and the deep paths"
    )
    targets: Targets | None = Field(
        default=None, description=f"{TARGETS}. Instead of those before; empty: all; null: the same"
    )


class ReleaseDocument(BaseModel):
    """A release: a request that goes out later."""

    id: str
    name: str = Field(description="Empty for a request that was sent with `at`")
    state: ReleaseStateName = STATE
    at: datetime | None
    action: str
    paths: list[str]
    deep_paths: list[str]
    targets: list[str] = Field(default_factory=list, description=TARGETS)
    user: str = Field(description="Whose rights it goes out with: who asked for it last")
    version: int = Field(description="Grows with every change")
    package_id: str = Field(description="Empty before it is SENT")
    reason: str
    created_at: datetime
    changed_at: datetime
    links: Links


class ReleaseList(BaseModel):
    """Releases of a publisher agent by their moments, those without one last."""

    agent: str
    releases: list[ReleaseDocument]
    next: str | None = Field(description="URL of the next page, or null at the end")


def release_document(release: Release) -> ReleaseDocument:
    """Return the document of a release."""
    return ReleaseDocument(
        id=release.release_id,
        name=release.name,
        state=release.state,
        at=release.fires_at,
        action=release.action,
        paths=release.paths,
        deep_paths=release.deep_paths,
        targets=release.targets,
        user=release.caller,
        version=release.version,
        package_id=release.package_id,
        reason=release.reason,
        created_at=release.created_at,
        changed_at=release.changed_at,
        links=Links(self=f"/releases/{release.release_id}"),
    )


def unsent_distribution(release: Release) -> DistributionDocument:
    """Return a release that is not sent as the distribution that it will be."""
    return DistributionDocument(
        id=release.release_id,
        package_id="",
        state=release.state,
        offset=None,
        action=release.action,
        paths=release.paths,
        deep_paths=release.deep_paths,
        targets=release.targets,
        user=release.caller,
        size=0,
        at=release.fires_at,
        reason=release.reason,
        nodes=0,
        accepted_at=release.created_at,
        subscribers=[],
        links=Links(self=f"/distributions/{release.release_id}"),
    )
