"""What differs between the author, or a subscriber, and a subscriber; and mending it (R8, R35).

Two sorted streams of digests are merged page by page, so memory is bounded for any subtree.
"""

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhorse.client.calls import queues
from packhorse.client.calls.distributing import request
from packhorse.client.errors import Conflict, Misused, NotFound, Refused
from packhorse.client.exchange import (
    Document,
    Operation,
    Pause,
    Request,
    ServiceName,
    deadline_in,
    quoted,
    requested,
    with_query,
)
from packhorse.content.batches import batches
from packhorse.content.node import ROOT, ancestors_of, parent_of
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.packages.region import SharedRegion, shared_regions

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
"""In the words of the audit: the subscriber lacks it, has it alone, has it otherwise."""

_PAGE = 5_000
_QUEUE = 1_000
_POLL_S = 0.5
_MOST_PATHS = 1_000
_MOST_BYTES = 64 * 1024


def compare(
    path: str,
    subscriber: str,
    *,
    other: str | None = None,
    after: str | None = None,
    limit: int = 1_000,
    wait: float = 0.0,
) -> Operation[Document]:
    """Return what differs at and below a path, in order: `differences` with `path` and `kind`.

    The client's `subscriber` is the one that is compared; its `content` is the author, or the
    `other` subscriber. A stack knows them by these names. Paths are the author's; a node that the
    subscriber has elsewhere has an `own_path` too, and comes behind those that have none. A `kind`
    is `missing`, `extra` or `different` there. What a package in their queues is about, or changes
    meanwhile, is only counted, as `under_way`; with `wait` the first 1,000 packages of each queue
    are waited for, up to so many seconds. `packages` are those in the queue at the end, None when
    that is not known, `state` is the queue's, `nodes` were compared with.

    Goes on until it has `limit` differences; `next` is then the `after` to go on with.
    """
    names = (subscriber,) if other is None else (subscriber, other)
    if wait > 0:
        yield from _caught_up(names, wait)
    filters = []
    for name in names:
        filters.append(queues.filter_of((yield from queues.subscriber(name))))
    found = yield from _compared(_all_sides(path, names, filters), after, limit)
    queue = yield from queues.queue(subscriber, limit=1)
    return Document({**found, "packages": queue["length"], "state": queue["state"]})


def _compared(
    every: Sequence["_Sides"], after: str | None, limit: int
) -> Operation[dict[str, Any]]:
    """Return what differs in one region after the other; a place begins with a region's number."""
    found: list[Document] = []
    nodes, under_way = 0, 0
    number, _, rest = (after or "").partition("/")
    if number and not number.isdecimal():
        raise Misused(f"a comparison goes on from its `next`, not from {after!r}")
    region, place = int(number or 0), f"/{rest}" if rest else None
    while region < len(every):
        sides = every[region]
        author, there, end = yield from sides.window(place)
        changing: list[str] = []
        if author != there:
            differences, changing = yield from _confirmed(sides, (place, end), author)
            found += differences
        if len(found) > limit:  # the rest of this window is read again
            del found[limit:]
            end = found[-1]["path"]
        nodes += sum(end is None or one <= end for one in author)
        under_way += sum(end is None or one <= end for one in changing)
        region, place = (region, end) if end else (region + 1, None)
        if len(found) >= limit:
            break
    following = f"{region or ''}{place or '/'}" if region < len(every) else None
    return {"differences": found, "nodes": nodes, "under_way": under_way, "next": following}


def mend(
    subscriber: str, differences: Iterable[Mapping[str, str]], *, key: str | None = None
) -> Operation[Document]:
    """Distribute what differs again, to this subscriber alone; return `ids` and `changed`.

    What it lacks or has otherwise goes out as the author has it now, what it has alone is deleted
    with all below it. `ids` are the distributions', `changed` the paths that the author has lost or
    has again since they were compared: they are left out. With `key` a repeated call distributes
    nothing twice.
    """
    rows = list(differences)
    wanted = [one["path"] for one in rows if one["kind"] != EXTRA]
    bodies = [("DELETE", some) for some in _in_requests(_tops(rows))]
    bodies += [("ADD", some) for some in _in_requests(wanted)]
    mended = Document(ids=[], changed=[])
    for number, (action, paths) in enumerate(bodies):
        absent = {"only_if_absent": True} if action == "DELETE" else {}
        body = {"action": action, "paths": paths, "targets": [subscriber], **absent}
        yield from _send_unchanged(body, key and f"{key}-{number}", mended)
    return mended


def _in_requests(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield the paths, as many together as one request may have."""
    return batches(paths, lambda path: len(path.encode()), most=_MOST_PATHS, most_size=_MOST_BYTES)


def _send_unchanged(body: dict[str, Any], key: str | None, mended: Document) -> Operation[None]:
    """Distribute the paths of a body, but for those that the author has lost, or has again."""
    left, tried = body["paths"], key
    while left:
        try:
            accepted = yield from request({**body, "paths": left}, tried)
        except (NotFound, Conflict) as error:
            changed = _path_at_fault(error, left)
            if changed is None:
                raise
            mended["changed"].append(changed)
            left = [path for path in left if path != changed]
            # Named by what is left: that is the same request when the call is repeated.
            tried = key and f"{key}-{hashlib.sha256(repr(left).encode()).hexdigest()[:16]}"
        else:
            mended["ids"].append(accepted["id"])
            return


def _path_at_fault(error: Refused, paths: Sequence[str]) -> str | None:
    """Return which of the paths a request was refused for, if it was for one."""
    for one in error.problem.get("errors", ()):
        number = one["pointer"].removeprefix("#/paths/")
        if number.isdecimal() and int(number) < len(paths):
            return paths[int(number)]
    return None


def _caught_up(names: Iterable[str], seconds: float) -> Operation[None]:
    """Return when subscribers have done the first 1,000 of their queues, or after some seconds."""
    deadline = yield from deadline_in(seconds)
    for name in names:
        queue = yield from queues.queue(name, limit=_QUEUE)
        goal = max((one["offset"] for one in queue["entries"]), default=-1)
        now: float = yield Pause()
        while queue["offset"] < goal and now < deadline:
            now = yield Pause(_POLL_S)
            queue = yield from queues.queue(name, limit=1)


Digests = dict[str, str]
_MERE_FOLDER = hashlib.sha256(b"folder\n{}\n{}").hexdigest()[:32]


def _all_sides(
    path: str, names: Sequence[str], filters: Sequence[PathFilter]
) -> Sequence["_Sides"]:
    without = sorted({name for one in filters for name in one.exclude_properties})
    folders = frozenset().union(*(one.may_be_folders for one in filters))
    return [_Sides(one, names, folders, without) for one in shared_regions(filters, path)]


@dataclass(frozen=True)
class _Sides:
    """Reads digests on both sides, by the author's paths, of what the filters take of a region."""

    shared: SharedRegion
    names: Sequence[str]
    folders: Container[str]
    without: Sequence[str]

    def window(self, after: str | None) -> Operation[tuple[Digests, Digests, str | None]]:
        """Return the next digests on both sides, up to the same path; None is the end."""
        author, more = yield from self._page("content", after)
        there, more_there = yield from self._page("subscriber", after)
        end = min((one for one in (more, more_there) if one is not None), default=None)
        if end is None:
            return author, there, None
        return (
            {one: digest for one, digest in author.items() if one <= end},
            {one: digest for one, digest in there.items() if one <= end},
            end,
        )

    def between(
        self, service: ServiceName, bounds: tuple[str | None, str | None]
    ) -> Operation[Digests]:
        """Return all digests of a window as it is now."""
        found, place = yield from self._page(service, *bounds)
        while place is not None:
            more, place = yield from self._page(service, place, bounds[1])
            found |= more
        return found

    def are_alike(self, path: str, author: str | None, there: str | None) -> bool:
        """Return whether two digests say the same; a folder above what is left out is nothing."""
        if author == there:
            return True
        return {author, there} <= {None, _MERE_FOLDER} and path in self.folders

    def difference(self, path: str, kind: str) -> Document:
        """Return what is told of a node."""
        own = self.shared.regions[0].own(path)
        return Document(path=path, kind=kind, **({} if own == path else {"own_path": own}))

    def _page(
        self, service: ServiceName, after: str | None, up_to: str | None = None
    ) -> Operation[tuple[Digests, str | None]]:
        """Return what is taken of a page, and its last path where it is not the last page."""
        side = slice(1) if service == "subscriber" else slice(1, None)
        region = next(iter(self.shared.regions[side]), EVERYTHING.regions[0])
        top, *bounds = (one and region.own(one) for one in (self.shared.top, after, up_to))
        asked = {"after": bounds[0], "up_to": bounds[1], "without": self.without or None}
        url = with_query(f"/digests{quoted(top or ROOT)}", **asked, limit=_PAGE)
        name = "".join(self.names[side])
        page = yield from requested(Request("GET", url, service, subscriber=name))
        found = {region.theirs(one["path"]): one["digest"] for one in page["nodes"]}
        taken = {one: said for one, said in found.items() if self.shared.holds(one)}
        return taken, next(reversed(found)) if page["next"] else None


def _confirmed(
    sides: _Sides, bounds: tuple[str | None, str | None], first: Digests
) -> Operation[tuple[list[Document], list[str]]]:
    """Look at a window again, and return what certainly differs, and what may be changing.

    The queue is read before the subscriber, so what was imported in between is seen there; and the
    author after it, so what was changed there meanwhile is noticed.
    """
    under_way = _UnderWay()
    for name in sides.names:
        under_way.add((yield from queues.queue(name, limit=_QUEUE)))
    there = yield from sides.between("subscriber", bounds)
    author = yield from sides.between("content", bounds)
    found: list[Document] = []
    changing: list[str] = []
    for one in sorted(author.keys() | there.keys()):
        if sides.are_alike(one, author.get(one), there.get(one)):
            continue
        if author.get(one) != first.get(one) or under_way.touches(one):
            changing.append(one)
        else:
            found.append(sides.difference(one, _kind(one, author, there)))
    return found, changing


def _kind(path: str, author: Digests, there: Digests) -> str:
    if path not in there:
        return MISSING
    return DIFFERENT if path in author else EXTRA


class _UnderWay:
    """What the packages in queues may change; of too many of them: everything."""

    def __init__(self) -> None:
        self._all = False
        self._deep: set[str] = set()
        self._nodes: set[str] = set()

    def add(self, queue: Document) -> None:
        """Take a queue with its entries."""
        entries = queue["entries"]
        self._all |= queue["length"] is None or queue["length"] > len(entries)
        for one in entries:
            self._all |= one["action"] is None
            self._deep.update(one["deep_paths"], one["paths"] if one["action"] == "DELETE" else ())
            for path in (*one["paths"], *one["deep_paths"]):
                self._nodes.update(_way_to(path))  # an import makes the folders above it

    def touches(self, path: str) -> bool:
        """Return whether one of them may change this node."""
        return self._all or path in self._nodes or not self._deep.isdisjoint(_way_to(path))


def _way_to(path: str) -> tuple[str, ...]:
    return (ROOT, *ancestors_of(path), path)


def _tops(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Return what the subscriber has alone and that lies below no other such node."""
    extra = dict.fromkeys(one["path"] for one in rows if one["kind"] == EXTRA)
    return [one for one in extra if parent_of(one) not in extra]
