"""By any interleaving: a sweep never removes what somebody still refers to (R22)."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from psycopg import sql

from packhorse.blobs.api import StoredBlob, binary_key
from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse.content.node import Binary, Node
from packhorse.snapshots.parts import write_part
from packhorse.snapshots.snapshot import part_key
from packhorse_services.pipeline.errors import NotYet
from packhorse_services.pipeline.sweep.stores import Stores
from tests.harness.depth import examples
from tests.harness.machines import play
from tests.harness.plain_report import PlainReport
from tests.harness.postgres import Databases
from tests.harness.snapshots import encoded_nodes
from tests.harness.sweep import EMPTY, Export, Yard, keys_in

CONTENTS = st.sampled_from([b"a", b"b", b"c"])
PATHS = st.sampled_from(["/x", "/y"])


class Sweeping(RuleBasedStateMachine):
    """Edits, exports in flight, a log that forgets, snapshots, marks and sweeps, step by step."""

    urls: tuple[str, str]
    folder: Path
    runs = 0

    @initialize()
    def begin(self) -> None:
        Sweeping.runs += 1
        name = f"sweeping-{Sweeping.runs}"
        self.yard = Yard(*self.urls, self.folder / name, f"memory://{name}")
        for connection in (self.yard.author, self.yard.subscriber):
            connection.execute(EMPTY)
        self.ready: list[Binary] = []
        self.exports: list[Export] = []
        self.parts: dict[str, Binary] = {}
        self.report: PlainReport | None = None

    def teardown(self) -> None:
        if hasattr(self, "yard"):
            for export in self.exports:
                export.connection.close()
            self.yard.close()

    # The author, which renews or uploads a binary first and writes the node afterwards.

    @rule(content=CONTENTS)
    def upload(self, content: bytes) -> None:
        self.ready.append(self.yard.upload(content))

    @rule(content=CONTENTS)
    def find_it_there_already(self, content: bytes) -> None:
        binary = Binary("data", _digest(content), len(content), "text/plain")
        if self.yard.blobs.renew(binary_key(binary.sha256)) is not None:
            self.ready.append(binary)

    @precondition(lambda self: self.ready)
    @rule(path=PATHS)
    def write(self, path: str) -> None:
        self.yard.write(path, self.ready.pop())

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.yard.remove(path)

    @precondition(lambda self: len(self.exports) < 2)
    @rule(path=PATHS)
    def begin_export(self, path: str) -> None:
        self.exports.append(self.yard.begin_export(path))

    @precondition(lambda self: self.report is None and len(self.exports) < 2)
    @rule(path=PATHS, content=CONTENTS)
    def let_go_of_something_old_while_it_is_exported(self, path: str, content: bytes) -> None:
        self.yard.write(path, self.yard.upload(content))
        self.a_day_passes()
        self.begin_export(path)
        self.yard.remove(path)

    @precondition(lambda self: self.exports)
    @rule()
    def commit_export(self) -> None:
        self.yard.commit_export(self.exports.pop(0))

    @rule()
    def append(self) -> None:
        self.yard.append_one()

    # The others.

    @rule()
    def import_next(self) -> None:
        self.yard.import_next()

    @precondition(lambda self: self.report is None)
    @rule()
    def the_log_forgets(self) -> None:
        self.yard.forget_log()

    @rule(path=PATHS)
    def make_a_snapshot(self, path: str) -> None:
        nodes = [node for node in self._nodes() if node.binaries]
        if nodes:
            key = part_key(f"{len(self.parts):016x}", 0)
            write_part(encoded_nodes(nodes[:1]), key, self.yard.blobs)
            self.parts[key] = nodes[0].binaries[0]

    @precondition(lambda self: self.parts)
    @rule()
    def forget_a_snapshot(self) -> None:
        key, _ = self.parts.popitem()
        self.yard.blobs.delete(key)

    @precondition(lambda self: self.report is None)
    @rule()
    def a_day_passes(self) -> None:
        self.ready.clear()  # nobody waits a day between upload and write
        self.yard.age()

    # Mark and sweep, together and with whatever comes between.

    @rule(much_later=st.booleans())
    def mark(self, much_later: bool) -> None:
        self.report = None
        if much_later:
            self.a_day_passes()
        self.report = self.yard.mark()

    @precondition(lambda self: self.report is not None)
    @rule()
    def sweep(self) -> None:
        with suppress(NotYet):  # an export that is older than the mark goes on
            self.yard.sweep(self.report)
            self.report = None

    @precondition(lambda self: not self.exports)
    @rule()
    def what_nobody_needs_is_gone_after_a_day(self) -> None:
        self.a_day_passes() if self.report is None else None
        old = self._old()
        self.report = self.yard.mark()
        self.yard.sweep(self.report)
        self.report = None
        assert not old & self.yard.keys() - self._needed()

    @invariant()
    def i18_whatever_is_referred_to_is_there(self) -> None:
        if hasattr(self, "yard"):
            assert self._needed() <= self.yard.keys()

    def _needed(self) -> set[str]:
        needed = self.yard.referenced()
        needed |= {binary_key(binary.sha256) for binary in [*self.ready, *self.parts.values()]}
        for export in self.exports:
            needed |= keys_in(export.message, self.yard.blobs)
        return needed

    def _nodes(self) -> list[Node]:
        from packhorse.content import tree

        with self.yard.subscriber.transaction():
            return list(tree.stream(self.yard.subscriber, "/"))

    def _old(self) -> set[str]:
        before = self.yard.blobs.now_ms() - 24 * 3600 * 1000
        return {b.key for b in self.yard.blobs.list("binaries/") if b.modified_ms < before}


def _digest(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def urls(databases: Databases) -> tuple[str, str]:
    made = (databases.new("author"), databases.new("sub"))
    with psycopg.connect(databases.server.url(), autocommit=True) as connection:
        for url in made:
            name = sql.Identifier(url.rpartition("/")[2])
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(name)
            )
    return made


def test_holds_whatever_happens_in_whatever_order(urls: tuple[str, str], tmp_path: Path) -> None:
    Sweeping.urls, Sweeping.folder = urls, tmp_path
    play(Sweeping, examples(20), derandomize=True, database=None, report_multiple_bugs=False)


def _no_second_look(report: PlainReport, round_name: str) -> Any:
    report.doomed = report.candidates


def _not_renewed(blobs: FilesystemBlobs, key: str) -> StoredBlob | None:
    return blobs.head(key)


def _removed_anyway(blobs: FilesystemBlobs, key: str, modified_ms: int) -> bool:
    blobs.delete(key)
    return True


def _export_ends_before_the_sweep(machine: Sweeping) -> None:
    machine.let_go_of_something_old_while_it_is_exported("/x", b"a")
    machine.mark(much_later=False)
    machine.commit_export()
    machine.sweep()


def _export_goes_on(machine: Sweeping) -> None:
    machine.let_go_of_something_old_while_it_is_exported("/x", b"a")
    machine.mark(much_later=False)
    machine.sweep()


def _about_to_be_written(machine: Sweeping) -> None:
    machine.upload(b"a")
    machine.mark(much_later=True)
    machine.find_it_there_already(b"a")
    machine.sweep()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("where", "what", "broken", "play"),
    [
        (PlainReport, "choose_doomed", _no_second_look, _export_ends_before_the_sweep),
        (FilesystemBlobs, "renew", _not_renewed, _about_to_be_written),
        (FilesystemBlobs, "delete_unless_renewed", _removed_anyway, _about_to_be_written),
        (Stores, "check_in_flight", lambda self, ended_ms: None, _export_goes_on),
    ],
    ids=["no second look", "no renewal", "renewal is ignored", "exports are not waited for"],
)
def test_the_model_finds_a_broken_sweep(
    urls: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    what: str,
    broken: Any,
    play: Callable[[Sweeping], None],
) -> None:
    """The steps that matter, in the order that matters: the invariant holds, and then breaks."""
    Sweeping.urls, Sweeping.folder = urls, tmp_path
    assert _holds_after(play)
    monkeypatch.setattr(where, what, broken)
    assert not _holds_after(play)


def _holds_after(play: Callable[[Sweeping], None]) -> bool:
    machine = Sweeping()
    machine.begin()
    try:
        play(machine)
        machine.i18_whatever_is_referred_to_is_there()
    except AssertionError:
        return False
    finally:
        machine.teardown()
    return True
