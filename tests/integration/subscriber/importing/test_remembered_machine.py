"""R27: no repeat is imported and each id is remembered, whatever dies; the model is a list."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from packhorse.wire.messages import Action, PackageMessage
from packhorse_services.subscriber.importing.context import GroupLimits
from packhorse_services.subscriber.importing.importer import Importer
from tests.harness.crash import Crash
from tests.harness.depth import examples
from tests.harness.feed import page
from tests.harness.fold import fold
from tests.harness.subscriber import Worker, content_in
from tests.integration.subscriber.machine import SubscriberMachine


class RememberingMachine(SubscriberMachine):
    """Packages come again under other numbers, workers die; the model is a list of offsets."""

    @initialize(packages=st.sampled_from([1, 2, 100]))
    def begin(self, packages: int) -> None:
        self.prepare(producer="author")
        self.packages = packages
        self.sent: list[PackageMessage] = []
        self.repeats: list[int] = []
        self.worker = self._new_worker()

    def _new_worker(self) -> Worker:
        return Worker(
            self.url,
            self.feed.journal,
            self.feed.blobs,
            remember_h=1.0,
            limits=GroupLimits(packages=self.packages, passed_s=0),
        )

    @rule(path=st.sampled_from(["/a", "/b"]), version=st.integers(0, 9))
    def send(self, path: str, version: int) -> None:
        message = self.feed.message(Action.ADD, [path], (), [page(path, version)])
        self.sent.append(message)
        self.feed.append(message)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), renumber=st.booleans())
    def send_again(self, data: st.DataObject, renumber: bool) -> None:
        message = data.draw(st.sampled_from(self.sent))
        self.repeats.append(
            self.feed.append(self.feed.renumbered(message) if renumber else message)
        )

    @rule()
    def run(self) -> None:
        self.worker.run()

    @rule()
    def restart(self) -> None:
        self.worker.die()
        self.worker = self._new_worker()

    @rule(committed=st.booleans())
    def kill_in_a_transaction(self, committed: bool) -> None:
        commit = Importer.commit

        def deadly(*arguments: Any) -> Any:
            if committed:
                commit(*arguments)
            raise Crash

        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Importer, "commit", deadly)
                self.worker.run()
        except Crash:
            pass
        self.restart()

    @invariant()
    def content_is_the_fold_without_repeats(self) -> None:
        if not hasattr(self, "worker"):
            return
        found = self.connection.execute("SELECT log_offset FROM bookkeeping.position").fetchone()
        expected = fold(
            self.feed.records(),
            self.feed.blobs,
            removed=self.repeats,
            up_to=found[0] if found else -1,
        )
        assert content_in(self.connection) == expected

    @invariant()
    def each_id_is_remembered_once_it_is_imported(self) -> None:
        if not hasattr(self, "worker"):
            return
        rows = self.connection.execute(
            "SELECT (SELECT count(*) FROM bookkeeping.applied_package), "
            "(SELECT count(*) FROM bookkeeping.status)"
        ).fetchall()
        assert rows[0][0] == rows[0][1]


def test_r27_no_repeat_is_imported_whatever_dies(database_url: str) -> None:
    class Machine(RememberingMachine):
        url = database_url

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(25),
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
