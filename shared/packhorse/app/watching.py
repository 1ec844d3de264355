"""The content that an app watches: below which paths, and what hears of its changes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import wraps

from packhorse.db.transactions import Connect, writing
from packhorse.jobs.content_changes.change import ChangeKind, ContentChange, WatchedRoots
from packhorse.jobs.content_changes.watches import ContentWatch, add_watch
from packhorse.jobs.event import Event
from packhorse.jobs.events.delivery import Handler


class ContentWatches:
    """A component that makes an app's watches when it starts; they last after it has ended."""

    def __init__(self, connect: Connect, watches: Sequence[ContentWatch]) -> None:
        self._connect, self._watches = connect, watches

    def start(self) -> None:
        """Store them. Raises `psycopg.Error`, `InvalidWatch`."""
        if not self._watches:
            return
        with writing(self._connect) as connection:
            for watch in self._watches:
                add_watch(connection, watch)

    def stop(self, timeout: float) -> None:
        """Do nothing."""


def heard_below(roots: Sequence[str], handler: Handler, watch: str | None) -> Handler:
    """Return what hears of changes below some paths only, with no other paths than these.

    `watch` is the one with types whose events it hears; None for those of all types.
    """
    held = WatchedRoots(roots)

    @wraps(handler, updated=())  # reports of slow handlers say its name
    def hear(event: Event) -> None:
        given = event.properties
        if given.get("watch") != watch:
            return
        kind = ChangeKind(event.topic.rpartition("/")[2])
        change = ContentChange(kind, given["paths"], given["deep_paths"]).below(held)
        if change.paths or change.deep_paths:
            seen = {"paths": list(change.paths), "deep_paths": list(change.deep_paths)}
            handler(replace(event, properties={**given, **seen}))

    return hear
