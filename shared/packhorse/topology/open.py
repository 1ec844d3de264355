"""How an instance takes part in the topology, and by which store."""

import contextlib
import math
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import psycopg

from packhorse.clock import SystemClock
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.topology.announcement_store import AnnouncementReader
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.discovery import Discovery
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.membership import Membership, StoreUnavailable
from packhorse.topology.patience import bookkeeper_connection
from packhorse.topology.properties import (
    DEFAULT_PREFIX,
    LEADER_PREFIX,
    FixedProperties,
    PropertyProvider,
)
from packhorse.topology.routing import Chooser
from packhorse.topology.view import ClusterView
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.sql import SqlVotingStore
from packhorse.topology.voting.times import VotingTimes

_LOOK_S = 120.0
"""How often to look without a hint. Changes are signalled by hints, and hints may be lost."""
_ABOVE_ALL = 2**31
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def instance_id(given: str = "", file: Path | None = None) -> str:
    """Return `given`, else what the file holds, else a new id, which the file then holds.

    An id has 1 to 100 letters, digits, '.', '_' and '-'. The file is made whole or not at all, for
    its owner only; of several programs that start at once, one makes it and the others read it. A
    copied machine has a copy of the file: the one that comes second hears `DuplicateInstance`.
    Raises `InvalidConfiguration`.
    """
    if given:
        return _checked(given, "the instance id")
    if file is None:
        return _fresh()
    try:
        return _checked(_read(file) or _made(file), f"instance id file {file}: what it holds")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"instance id file {file}: {error}") from error


def _checked(value: str, what: str) -> str:
    if not _ID.fullmatch(value):
        raise InvalidConfiguration(f"{what} needs 1 to 100 letters, digits, '.', '_' or '-'")
    return value


def _fresh() -> str:
    return str(uuid.uuid4())


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return opened.read(1024).decode().strip()
    except FileNotFoundError:
        return None


def _made(file: Path) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=file.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w") as opened:
            opened.write(_fresh() + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
    finally:
        Path(draft).unlink()
    return _read(file) or ""


def open_discovery(
    url: str,
    settings: TopologyConfiguration,
    providers: Iterable[PropertyProvider] = (),
) -> Discovery:
    """Return the component that takes part in the cluster of a database; it is not started.

    Nothing connects before the start. Raises `InvalidConfiguration` when the id or its file can't
    be used.
    """
    prefix = settings.leader_prefix if settings.leader_prefix != DEFAULT_PREFIX else None
    return Discovery(
        _membership(url, settings),
        providers=[FixedProperties({LEADER_PREFIX: prefix}, ranking=_ABOVE_ALL), *providers],
        remotes=SqlRemoteClusters(url),
        min_event_delay_s=settings.min_event_delay_s,
    )


def _membership(url: str, settings: TopologyConfiguration) -> Membership:
    own_id = instance_id(settings.instance_id, settings.id_file)
    interval_s, timeout_s = settings.topology_times
    if settings.topology_store == "lease":
        store = SqlLeaseStore(url, patience_s=min(4.0, timeout_s * 0.4))
        return LeaseMember(store, own_id, interval_s=interval_s, lease_s=timeout_s)
    times = VotingTimes(interval_s, timeout_s)
    votes = SqlVotingStore(url, own_id)
    return VotingMember(votes, own_id, times=times, prefix=settings.leader_prefix)


class SqlRemoteClusters:
    """Reads them from the cluster's database; used by one thread.

    One small statement a look, on a connection that is not kept: looks are rare, and each program
    of a cluster would hold one. Contents are read when they have changed.
    """

    def __init__(self, database_url: str) -> None:
        self._url, self._clock = database_url, SystemClock()
        self._fresh_until = -math.inf
        self._reader, self._chooser = AnnouncementReader(), Chooser()

    def clusters(self) -> Sequence[ClusterView]:
        """Return those that are announced now, by id, each once. Raises `StoreUnavailable`."""
        self._fresh_until = -math.inf
        try:
            with closing(bookkeeper_connection(self._url, "topology-remotes")) as connection:
                live = self._reader.read(connection)
        except psycopg.Error as error:
            raise StoreUnavailable(f"announcements can't be read: {error}") from error
        rest_s = min(_LOOK_S, max(0.0, live.until - live.now))
        self._fresh_until = self._clock.monotonic() + rest_s
        # Routes through the own cluster were left out before they were kept.
        return tuple(one.cluster for one in self._chooser.routes(live.heard, own_cluster=""))

    def is_fresh(self) -> bool:
        """Return whether a look now would show the same, unless a hint has come since the last."""
        return self._clock.monotonic() < self._fresh_until
