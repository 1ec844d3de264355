"""R5: a release is sent once or not at all, whatever dies, and whatever changes meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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

from packhorse.db.connect import AWAY
from packhorse.jobs.consumer import LONGEST_RETRY_DELAY, Outcome, Retry
from packhorse_services.publisher.outbox import release_rows
from packhorse_services.publisher.outbox.append_lock import AppendLock
from packhorse_services.publisher.outbox.release_rows import Release
from packhorse_services.publisher.queues.queue import UnknownSubscriber
from packhorse_services.publisher.queues.topic_follower import NotCaughtUp
from packhorse_services.publisher.releases.contents import ReleaseChange, ReleaseEnded
from tests.harness.crash import Crash
from tests.harness.depth import examples
from tests.harness.machines import play
from tests.harness.publishing import Fuse, publish, request
from tests.integration.releases import ReleaseStage, open_stage

ROOTS = ("/",)


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[ReleaseStage]:
    stage = open_stage(database_url, tmp_path)
    yield stage
    stage.close()


def test_r5_a_crash_at_any_step_sends_it_once(stage: ReleaseStage) -> None:
    steps, blown = 0, True
    while blown:
        release = stage.plan("/p0")
        job = stage.jobs()[-1]
        fuse = Fuse(steps)
        dying = stage.dying(fuse)
        with suppress(Crash):
            stage.send(job, dying)
        dying.close()
        blown = fuse.blown
        for _ in range(2):
            stage.send(job)
        sent = stage.releases.find(release.release_id)
        assert (sent.state, stage.counted()[sent.package_id]) == ("SENT", 1), steps
        steps += 1
    assert steps > 15
    assert stage.counted().total() == steps


@pytest.mark.parametrize("wait", [timedelta(hours=1), timedelta(days=9_000)])
def test_a_release_waits_for_its_moment_whoever_repeats_its_job(
    stage: ReleaseStage, wait: timedelta
) -> None:
    release = stage.plan("/p0", datetime.now(UTC) + wait)
    [job] = stage.jobs()
    with pytest.raises(Retry, match="has not come") as early:
        stage.send(job)
    assert timedelta(0) < (early.value.after or timedelta(0)) <= min(wait, LONGEST_RETRY_DELAY)
    assert stage.releases.find(release.release_id).state == "SCHEDULED"


@pytest.mark.parametrize("kind", AWAY)
def test_a_release_waits_for_a_database_that_is_away(
    stage: ReleaseStage, kind: type[psycopg.Error]
) -> None:
    def away() -> psycopg.Connection:
        raise kind("away")

    release = stage.plan("/p0")
    [job] = stage.jobs()
    with pytest.raises(kind):
        stage.send(job, stage.author.replica(lock=AppendLock(away)))
    waits = stage.releases.find(release.release_id)
    assert (waits.state, waits.reason) == ("SCHEDULED", "away")
    assert stage.send(job) is Outcome.OK
    assert stage.releases.find(release.release_id).state == "SENT"


def test_r5_a_repeat_has_its_answer_when_its_target_was_forgotten_meanwhile(
    stage: ReleaseStage,
) -> None:
    keyed = replace(request("/p0", key="once"), targets=("north",))
    release, _ = stage.releases.give(keyed, "now")
    stage.forgotten.add("north")
    assert stage.releases.give(keyed, "now") == (release, True)
    with pytest.raises(UnknownSubscriber):
        stage.releases.give(replace(keyed, idempotency_key="other"), "now")


def test_r35_a_release_for_some_waits_until_the_publisher_has_heard_of_them(
    stage: ReleaseStage,
) -> None:
    def unheard() -> None:
        raise NotCaughtUp("the announcements are still being read")

    release, _ = stage.releases.give(replace(request("/p0"), targets=("north",)), "now")
    [job] = stage.jobs()
    with pytest.raises(NotCaughtUp):
        stage.send(job, check_known=unheard)
    waits = stage.releases.find(release.release_id)
    assert (waits.state, waits.reason) == ("SCHEDULED", "the announcements are still being read")
    stage.send(job)
    assert stage.releases.find(release.release_id).state == "SENT"


@pytest.fixture
def hurried(database_url: str, tmp_path: Path) -> Iterator[ReleaseStage]:
    """A stage of which a change does not wait for the one that it is made in the middle of."""
    stage = open_stage(database_url, tmp_path, lock_ms=200)
    yield stage
    stage.close()


def reschedule(stage: ReleaseStage, release: Release) -> None:
    stage.releases.change(release.release_id, ReleaseChange("x", ROOTS, "now", True, ["/p1"]))


def cancel(stage: ReleaseStage, release: Release) -> None:
    stage.releases.cancel(release.release_id, ROOTS)


@pytest.mark.parametrize("change", [cancel, reschedule])
def test_what_changes_at_any_step_of_its_sending_comes_before_it_or_is_refused(
    hurried: ReleaseStage, change: Callable[[ReleaseStage, Release], None]
) -> None:
    steps, outcomes, came = 0, set(), True
    while came:
        release = hurried.plan("/p0")
        job = hurried.jobs()[-1]
        answers: list[str] = []

        def meddle(release: Release = release, answers: list[str] = answers) -> None:
            try:
                change(hurried, release)
                answers.append("changed")
            except ReleaseEnded:
                answers.append("too late")
            except psycopg.errors.LockNotAvailable:
                answers.append("locked")

        replica = hurried.meddled(steps, meddle)
        hurried.send(job, replica)
        replica.close()
        came = bool(answers)
        found = hurried.releases.find(release.release_id)
        if answers == ["changed"]:
            assert not found.package_id, steps
            assert found.state == ("CANCELLED" if change is cancel else "SCHEDULED")
        else:
            assert (found.state, hurried.counted()[found.package_id]) == ("SENT", 1), steps
            assert found.paths == ["/p0"]
        outcomes |= set(answers)
        publish(hurried.healthy, request("/p0"))
        steps += 1
    assert outcomes == {"changed", "locked", "too late"}


@pytest.mark.proof
def test_the_checker_catches_a_publisher_that_does_not_write_it_down(
    stage: ReleaseStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_rows, "sent", lambda *_: None)
    stage.plan("/p0")
    for _ in range(2):
        stage.send(stage.jobs()[-1])
    assert stage.counted().total() == 2


class Life(RuleBasedStateMachine):
    """Releases that are planned, changed, cancelled and sent by replicas of which some die."""

    stage: ReleaseStage

    @initialize()
    def begin(self) -> None:
        self.stage.author.rows("DELETE FROM bookkeeping.release RETURNING release_id")
        self.stage.author.rows("DELETE FROM jobs.job RETURNING number")
        self.stage.author.rows("DELETE FROM bookkeeping.idempotency_key RETURNING key")
        self.before = self.stage.counted()
        self.expected: dict[str, str] = {}
        """State by release; SCHEDULED? is one of which a replica has died while it sent it."""
        self.keys: dict[str, str] = {}
        self.old_jobs: list[Any] = []

    def pick(self, number: int) -> str:
        return sorted(self.expected)[number % len(self.expected)]

    @rule(moment=st.sampled_from(["now", None]), key=st.sampled_from([None, "a", "b"]))
    def plan(self, moment: Any, key: str | None) -> None:
        full_key = f"{key}{moment}" if key else None
        release = self.stage.plan("/p0", moment, full_key)
        known = self.keys.get(full_key or "")
        if known:
            assert release.release_id == known
            return
        assert release.release_id not in self.expected
        self.expected[release.release_id] = "SCHEDULED" if moment else "DRAFT"
        if full_key:
            self.keys[full_key] = release.release_id

    @precondition(lambda self: self.expected)
    @rule(number=st.integers(0, 9), moment=st.sampled_from(["now", None]))
    def change(self, number: int, moment: Any) -> None:
        release_id = self.pick(number)
        self.old_jobs = [*self.old_jobs, *self.stage.jobs()][-10:]
        change = ReleaseChange("x", ROOTS, moment, True, ["/p1"])
        try:
            self.stage.releases.change(release_id, change)
        except ReleaseEnded:
            assert self.expected[release_id] in ("SENT", "CANCELLED", "SCHEDULED?")
            self.settle(release_id)
        else:
            assert self.expected[release_id] in ("DRAFT", "SCHEDULED", "SCHEDULED?")
            self.expected[release_id] = "SCHEDULED" if moment else "DRAFT"

    @precondition(lambda self: self.expected)
    @rule(number=st.integers(0, 9))
    def cancel(self, number: int) -> None:
        release_id = self.pick(number)
        self.old_jobs = [*self.old_jobs, *self.stage.jobs()][-10:]
        try:
            self.stage.releases.cancel(release_id, ROOTS)
        except ReleaseEnded:
            assert self.expected[release_id] in ("SENT", "SCHEDULED?")
            self.settle(release_id)
        else:
            assert self.expected[release_id] != "SENT"
            self.expected[release_id] = "CANCELLED"

    def settle(self, release_id: str) -> None:
        if self.expected[release_id] == "SCHEDULED?":
            self.expected[release_id] = "SENT"

    @rule(number=st.integers(0, 20), steps=st.none() | st.integers(0, 60))
    def send(self, number: int, steps: int | None) -> None:
        jobs = [*self.stage.jobs(), *self.old_jobs]
        if not jobs:
            return
        job = jobs[number % len(jobs)]
        release_id = job["release"]
        expected = self.expected.get(release_id)
        due = self.stage.releases.due(release_id, job["version"]) is not None
        if steps is None:
            self.stage.send(job)
            if due or expected == "SCHEDULED?":
                self.expected[release_id] = "SENT" if due else "SCHEDULED?"
            return
        fuse = Fuse(steps)
        dying = self.stage.dying(fuse)
        with suppress(Crash):
            self.stage.send(job, dying)
        dying.close()
        if due:
            self.expected[release_id] = "SCHEDULED?" if fuse.blown else "SENT"

    @invariant()
    def each_is_sent_once_or_not_at_all(self) -> None:
        if not hasattr(self, "before"):
            return
        counted = self.stage.counted() - self.before
        assert set(counted.values()) <= {1}
        packages = set()
        for release_id, expected in self.expected.items():
            found = self.stage.releases.find(release_id)
            assert (found.state == "SENT") == bool(found.package_id)
            packages |= {found.package_id} - {""}
            if expected == "SCHEDULED?":
                assert found.state in ("SCHEDULED", "SENT")
            else:
                assert found.state == expected
        assert packages == set(counted)


def test_r5_a_release_lives_as_its_model_says(database_url: str, tmp_path: Path) -> None:
    stage = open_stage(database_url, tmp_path)

    class Machine(Life):
        def __init__(self) -> None:
            super().__init__()
            self.stage = stage

    play(Machine, examples(24))
    stage.close()
