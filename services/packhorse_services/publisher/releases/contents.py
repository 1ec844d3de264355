"""What a release is, when it is given or changed, without I/O: its content, and its limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import uuid4

from packhorse.errors import Permanent, Transient
from packhorse.packages.build import PathRefused
from packhorse.packages.scope import first_outside
from packhorse.runtime import tracing
from packhorse.wire.messages import Action
from packhorse_services.publisher.outbox.release_rows import Release
from packhorse_services.publisher.outbox.request import DistributionRequest, ReleaseVersion

MAX_PATHS, MAX_PATH_BYTES = 1_000, 64 * 1024

Moment = datetime | Literal["now"] | None
"""When it goes out, by the database's clock; None: not before somebody says when."""


class UnknownRelease(Permanent):
    """There is no such release, or it is forgotten."""


class ReleaseEnded(Permanent):
    """The release is sent or cancelled, and can't be changed any more."""


class ReleaseExists(Permanent):
    """An open release has this name."""


class ReleaseRefused(Permanent):
    """A release can't be like that; the text says why."""


class TooManyReleases(Transient):
    """As many releases are open as may be."""


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    """What is to be another way, and in whose name it goes out from then on."""

    caller: str
    roots: tuple[str, ...]
    moment: Moment = None
    moves: bool = False
    """Whether `moment` is meant."""
    paths: Sequence[str] = ()
    deep_paths: Sequence[str] = ()
    """Both are added."""
    without: Sequence[str] = ()
    """Taken out, from both."""
    targets: Sequence[str] | None = None
    """Instead of those that there are; None: the same, empty: all subscribers."""

    @property
    def only_sends(self) -> bool:
        """Whether it asks for nothing but that the release goes out."""
        named = (*self.paths, *self.deep_paths, *self.without)
        return self.moves and self.moment == "now" and not named and self.targets is None


def request_of(release: Release) -> DistributionRequest:
    """Return what sends a release, with the rights of who asked for it last."""
    return DistributionRequest(
        action=Action(release.action),
        paths=tuple(release.paths),
        deep_paths=tuple(release.deep_paths),
        targets=tuple(release.targets),
        caller=release.caller,
        roots=tuple(release.roots),
        traceparent=release.traceparent,
        release=ReleaseVersion(release.release_id, release.version),
    )


def new_release(request: DistributionRequest, name: str) -> Release:
    """Return a release of what is asked for, before it is stored."""
    nobody: Any = None
    return Release(
        release_id=f"release-{uuid4().hex}",
        name=name,
        version=1,
        state="DRAFT",
        fires_at=None,
        job=None,
        caller=request.caller,
        roots=list(request.roots),
        action=request.action.value,
        paths=list(request.paths),
        deep_paths=list(request.deep_paths),
        targets=list(request.targets),
        traceparent=request.traceparent,
        package_id="",
        reason="",
        created_at=nobody,
        changed_at=nobody,
    )


def changed(release: Release, change: ReleaseChange) -> Release:
    """Return the next version of a release. Raises `ReleaseRefused`."""
    without = set(change.without)
    missing = without.difference(release.paths, release.deep_paths)
    if missing:
        raise ReleaseRefused(f"{min(missing)!r} is not in the release")
    return replace(
        release,
        version=release.version + 1,
        caller=change.caller,
        roots=list(change.roots),
        paths=_merged(release.paths, change.paths, without),
        deep_paths=_merged(release.deep_paths, change.deep_paths, without),
        targets=release.targets if change.targets is None else [*dict.fromkeys(change.targets)],
        traceparent=tracing.traceparent(),
    )


def _merged(paths: Sequence[str], added: Sequence[str], without: set[str]) -> list[str]:
    return [*dict.fromkeys([*(one for one in paths if one not in without), *added])]


def check(release: Release, *, has_moment: bool) -> None:
    """Raise what a release can't be planned with."""
    check_roots(release, release.roots)
    paths = [*release.paths, *release.deep_paths]
    size = sum(len(path.encode()) for path in paths)
    if len(paths) > MAX_PATHS or size > MAX_PATH_BYTES:
        raise ReleaseRefused(
            f"a release has at most {MAX_PATHS} paths of {MAX_PATH_BYTES} bytes together, for it "
            "is one package; name what holds them as a deep path"
        )
    if has_moment and not paths and release.action != "TEST":
        raise ReleaseRefused("the release has no paths yet; add some before it gets a moment")
    if release.action == "DELETE" and "/" in paths:
        raise ReleaseRefused("the root can't be deleted; name what is below it")


def check_roots(release: Release, roots: Sequence[str]) -> None:
    """Raise `PathRefused` for a release with a path that lies below none of `roots`."""
    outside = first_outside([*release.paths, *release.deep_paths], roots)
    if outside is not None:
        raise PathRefused(outside, roots)


def unknown(named: str) -> UnknownRelease:
    """Return what a release that is not there is answered with."""
    return UnknownRelease(
        f"no release {named!r}, or it ended long ago; `packhorse get releases` or GET /releases "
        "lists them"
    )


def ended(release: Release) -> ReleaseEnded:
    """Return what changing a release is refused with that has ended."""
    if release.package_id:
        return ReleaseEnded(
            f"the release is sent, as package {release.package_id}; GET "
            f"/distributions/{release.package_id} says what became of it"
        )
    return ReleaseEnded(f"the release is {release.state}; plan a new one")
