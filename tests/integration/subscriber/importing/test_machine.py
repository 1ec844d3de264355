"""A subscription against a model.

Whatever comes, clears, fails, dies or is trimmed, in whatever order.
"""

from collections.abc import Callable
from dataclasses import dataclass
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

from packhorse.messaging.api import Record
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.wire.messages import Status
from packhorse.wire.package_codec import PACKAGE_ID_HEADER, decode_entry
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.context import GroupLimits
from packhorse_services.subscriber.importing.importer import Importer
from tests.harness.crash import Crash
from tests.harness.depth import examples
from tests.harness.feed import TOPICS, page
from tests.harness.fold import MERE_FOLDER, as_authored, filtered, fold
from tests.harness.subscriber import Worker, content_in
from tests.integration.subscriber.machine import SubscriberMachine

PATHS = ["/a", "/a/b", "/a/b/c", "/ab", "/d"]
paths = st.sampled_from(PATHS)
filters = st.sampled_from(
    [
        EVERYTHING,
        PathFilter(exclude=("/a/b",)),
        PathFilter(include=("/a/b", "/d")),
        PathFilter(include=("/a", "/a/b/c"), exclude=("/a/b", "/a/x", "/d/y")),
        PathFilter(map_paths=(("/a/b", "/d"), ("/d", "/a/b")), exclude_properties=("version",)),
        PathFilter((), ("/m",), (("/a", "/m/n"), ("/a/b/c", "/a"), ("/d", "/m/d"))),
        PathFilter((), ("/ab", "/a/x"), (("/a/b", "/ab"), ("/d", "/a/x")), ("ver*",)),
    ]
)


@dataclass
class Sent:
    """One record of the log as the model knows it."""

    record: Record
    kind: str  # good, bad, repeat, other, not_ours


class SubscriptionMachine(SubscriberMachine):
    """The model: what was sent, what was cleared, and where the subscription is."""

    @initialize(
        retries=st.sampled_from([-1, 0, 2]),
        packages=st.sampled_from([1, 3, 100]),
        path_filter=filters,
    )
    def begin(self, retries: int, packages: int, path_filter: PathFilter) -> None:
        self.prepare(producer="author")
        self.retries, self.packages, self.filter = retries, packages, path_filter
        self.sent: list[Sent] = []
        self.clears: list[int] = []
        self.position = -1
        self.decided: dict[int, Status] = {}
        self.imported_ids: set[bytes] = set()
        self.repeats_of_imported: set[int] = set()
        """Reported as DUPLICATE only by a worker that has forgotten what it imported."""
        self.worker = self._new_worker()

    def _stored_offset(self) -> int:
        found = self._rows("SELECT log_offset FROM bookkeeping.position")
        return found[0][0] if found else -1

    def _new_worker(self) -> Worker:
        worker = Worker(
            self.url,
            self.feed.journal,
            self.feed.blobs,
            policy=RetryPolicy(self.retries, 0.0, 0.0),
            limits=GroupLimits(packages=self.packages, passed_s=0),
            path_filter=self.filter,
        )
        for up_to in self.clears:
            worker.clear(up_to, str(up_to))
        return worker

    def _sent(self, offset: int, kind: str) -> None:
        record = self.feed.journal.read_at(TOPICS.package, offset)
        assert record is not None
        self.sent.append(Sent(record, kind))

    @rule(chosen=st.lists(paths, min_size=1, max_size=3), version=st.integers(0, 99))
    def add(self, chosen: list[str], version: int) -> None:
        self._sent(self.feed.add(*(page(path, version) for path in chosen)), "good")

    @rule(root=paths, below=st.lists(st.sampled_from("xyz"), max_size=3), version=st.integers(0, 9))
    def add_deep(self, root: str, below: list[str], version: int) -> None:
        nodes = [page(root, version), *(page(f"{root}/{name}", version) for name in below)]
        self._sent(self.feed.add(*nodes, deep=[root]), "good")

    @rule(path=paths, version=st.integers(0, 99), ours=st.booleans())
    def add_for_some(self, path: str, version: int, ours: bool) -> None:
        offset = self.feed.add_for(["sub", "x"] if ours else ["x"], page(path, version))
        self._sent(offset, "good" if ours else "not_ours")

    @rule(path=paths)
    def delete(self, path: str) -> None:
        self._sent(self.feed.delete(path), "good")

    @rule()
    def send_bad(self) -> None:
        self._sent(self.feed.bad(), "bad")

    @rule(path=paths, bad=st.booleans())
    def send_to_another(self, path: str, bad: bool) -> None:
        offset = self.feed.bad(agent="other") if bad else self.feed.add(page(path), agent="other")
        self._sent(offset, "other")

    @precondition(lambda self: any(sent.kind in ("good", "repeat") for sent in self.sent))
    @rule(data=st.data())
    def send_again(self, data: Any) -> None:
        old = data.draw(st.sampled_from([s for s in self.sent if s.kind in ("good", "repeat")]))
        self._sent(self.feed.raw(old.record.value, dict(old.record.headers)), "repeat")

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def clear(self, data: Any) -> None:
        up_to = data.draw(st.integers(0, self.sent[-1].record.offset))
        self.clears.append(up_to)
        self.worker.clear(up_to, str(up_to))

    @rule()
    def run(self) -> None:
        end = self._reachable()
        self.worker.run(lambda: self._stored_offset() >= end)
        self._follow()

    @rule(steps=st.integers(1, 4))
    def run_a_little(self, steps: int) -> None:
        session = self.worker.session or self.worker.begin()
        for _ in range(steps):
            session.step()
        self._follow()

    @rule()
    def restart(self) -> None:
        self.worker.die()
        self.worker = self._new_worker()

    @precondition(lambda self: self.retries == -1)
    @rule(committed=st.booleans())
    def kill_in_a_transaction(self, committed: bool) -> None:
        commit, end = Importer.commit, self._reachable()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Importer, "commit", _deadly(commit, committed))
                self.worker.run(lambda: self._stored_offset() >= end)
        except Crash:
            pass
        self._follow()
        self.restart()

    @rule()
    def trim(self) -> None:
        self.feed.journal.truncate(TOPICS.package, self.position + 1)

    @rule()
    def report(self) -> None:
        self.worker.send_statuses()

    def _reachable(self) -> int:
        """Where the subscription comes to: the end, or the first bad package that blocks it."""
        for sent in self.sent:
            offset = sent.record.offset
            blocks = sent.kind == "bad" and self.retries == -1 and not self._is_cleared(offset)
            if offset > self.position and blocks:
                return max(self.position, self._last_own_or_other_before(offset))
        return self.sent[-1].record.offset if self.sent else -1

    def _last_own_or_other_before(self, offset: int) -> int:
        own = [s.record.offset for s in self.sent if s.kind != "other"]
        return max((o for o in own if o < offset), default=-1)

    def _is_cleared(self, offset: int) -> bool:
        return any(offset <= up_to for up_to in self.clears)

    def _follow(self) -> None:
        """Decide in the model what the subscription has passed since the last look."""
        reached = self._stored_offset()
        assert reached >= self.position
        for sent in self.sent:
            offset = sent.record.offset
            if self.position < offset <= reached and sent.kind != "other":
                self._decide(offset, sent)
        self.position = reached

    def _decide(self, offset: int, sent: Sent) -> None:
        package_id = sent.record.headers[PACKAGE_ID_HEADER]
        if self._is_cleared(offset):
            self.decided[offset] = Status.REMOVED
        elif sent.kind == "not_ours" or self._is_left_out(sent.record):
            self.decided[offset] = Status.SKIPPED
        elif sent.kind == "bad":
            assert self.retries >= 0, "a bad package was passed"
            self.decided[offset] = Status.REMOVED_FAILED
        elif sent.kind == "good":
            self.decided[offset] = Status.IMPORTED
            self.imported_ids.add(package_id)
        elif package_id in self.imported_ids:
            self.repeats_of_imported.add(offset)
        else:
            self.decided[offset] = Status.DUPLICATE

    def _is_left_out(self, record: Record) -> bool:
        return bool(self.filter.left_out(decode_entry(record.headers)))

    @invariant()
    def content_is_the_fold(self) -> None:
        """What the filter leaves out is in the fold, and in neither side of the comparison."""
        if not hasattr(self, "worker"):
            return
        taken = {sent.record.offset for sent in self.sent if sent.kind in ("good", "repeat")}
        left_out = {o for o, status in self.decided.items() if status is Status.SKIPPED} & taken
        removed = {o for o, status in self.decided.items() if status is not Status.IMPORTED}
        own = [sent.record for sent in self.sent if sent.kind != "other"]
        expected = fold(own, self.feed.blobs, removed=removed - left_out, up_to=self.position)
        found = content_in(self.connection)
        mine, others = as_authored(found, self.filter)
        assert mine == filtered(expected, self.filter)
        assert all(node == MERE_FOLDER for node in others.values())

    @invariant()
    def statuses_are_what_was_decided(self) -> None:
        if not hasattr(self, "worker"):
            return
        unsent = self._rows(
            "SELECT log_offset, status FROM bookkeeping.status s WHERE log_offset > coalesce("
            "(SELECT log_offset FROM bookkeeping.status_mark), -1)",
        )
        reported = [(status.offset, status.status) for status in self.feed.statuses()]
        reported += [(offset, Status(status)) for offset, status in unsent]
        reported = [one for one in reported if one not in self._may_be_reported()]
        assert sorted(reported, key=lambda each: each[0]) == sorted(self.decided.items())

    def _may_be_reported(self) -> set[tuple[int, Status]]:
        return {(offset, Status.DUPLICATE) for offset in self.repeats_of_imported}


def _deadly(commit: Callable[..., Any], committed: bool) -> Callable[..., Any]:
    def dies(importer: Importer, connection: Any, *rest: Any) -> Any:
        if committed:
            commit(importer, connection, *rest)
        raise Crash

    return dies


def test_r8_r9_r10_r19_r27_a_subscription_does_what_the_model_says(database_url: str) -> None:
    machine = type("Machine", (SubscriptionMachine,), {"url": database_url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(30),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
