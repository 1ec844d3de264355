"""What queues show of a package, as plain tuples that a model can compare."""

from typing import Any

from packhorse.content.node import is_within
from packhorse.wire.messages import PackageEntry
from packhorse_services.publisher.queues.cache.columns import QueueEntry
from packhorse_services.publisher.queues.cache.filters import EntryFilter

Shown = tuple[Any, ...]
"""Offset, package id, action, size, user, paths, deep paths."""


def content(entry: PackageEntry) -> Shown:
    """Return what is shown of a package, but for its offset."""
    return (
        *(entry.package_id, entry.action, entry.body_length),
        *(entry.user, entry.paths, entry.deep_paths),
    )


def flat(entry: QueueEntry) -> Shown:
    """Return what a queue shows."""
    return (
        *(entry.offset, entry.package_id, entry.action, entry.size),
        *(entry.user, entry.paths, entry.deep_paths),
    )


def matches(one: Shown, wanted: EntryFilter) -> bool:
    """Return whether a filter lets it through."""
    _, _, action, _, _, paths, deep_paths = one
    prefix = wanted.path_prefix
    below = prefix is None or any(is_within(path, prefix) for path in (*paths, *deep_paths))
    return below and (wanted.action is None or action is wanted.action)
