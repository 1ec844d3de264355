"""Commands against a model: whatever is asked, in whatever order, with restarts in between."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, LiteralString

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)

from packhorse.wire.messages import CommandState, DesiredState, Status
from packhorse_services.subscriber.importing.context import GroupLimits
from tests.harness.commands import following
from tests.harness.depth import examples
from tests.harness.feed import TOPICS, page
from tests.harness.fold import fold
from tests.harness.machines import play
from tests.harness.subscriber import Worker, content_in
from tests.harness.waiting import eventually
from tests.integration.subscriber.machine import SubscriberMachine

LEASE_SESSIONS: LiteralString = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'packhorse-lease %' "
    "AND datname = current_database()"
)
SEEN, APPLIED, REJECTED = CommandState.SEEN, CommandState.APPLIED, CommandState.REJECTED


@dataclass
class Clear:
    """A clear as the model knows it."""

    up_to: int
    removed: int = 0


@dataclass
class Model:
    """What the subscription must be, from what was sent and asked alone."""

    own: list[int] = field(default_factory=list)
    end: int = 0
    """The next offset of the log."""
    position: int = -1
    desired: DesiredState = DesiredState.RUN
    clears: dict[str, Clear] = field(default_factory=dict)
    ended: dict[str, tuple[CommandState, int]] = field(default_factory=dict)
    imported: list[int] = field(default_factory=list)
    """In the order of the imports; a reset brings some again."""
    times_removed: int = 0

    def run(self) -> None:
        """Go on until nothing more can be done."""
        if self.desired is not DesiredState.STOP:
            for offset in [one for one in self.own if one > self.position]:
                if not self._pass(offset):
                    break
            else:
                self.position = self.end - 1
        self._end_clears()

    def _pass(self, offset: int) -> bool:
        command = self._covering(offset)
        if command is None and self.desired is not DesiredState.RUN:
            return False
        if command is not None:
            command.removed += 1
            self.times_removed += 1
        else:
            self.imported.append(offset)
        self.position = offset
        return True

    def _covering(self, offset: int) -> Clear | None:
        """Return the nearest one; of several with one bound that with the lowest id."""
        covering = [(one.up_to, name) for name, one in self.clears.items() if one.up_to >= offset]
        return self.clears[min(covering)[1]] if covering else None

    def _end_clears(self) -> None:
        """End those behind which nothing of the subscription is left, as far as it can know.

        Their end is stored with the position, at what was passed of other agents' packages.
        """
        ahead = [one for one in self.own if one > self.position]
        running = self.desired is not DesiredState.STOP
        reached = (ahead[0] if ahead else self.end) - 1 if running else self.position
        for command_id, clear in list(self.clears.items()):
            if clear.up_to <= reached:
                self.ended[command_id] = APPLIED, clear.removed
                del self.clears[command_id]
                self.position = reached

    def reset(self, command_id: str, offset: int) -> None:
        if self.desired is not DesiredState.STOP:
            self.ended[command_id] = REJECTED, 0
            return
        self.position = offset
        self.ended[command_id] = APPLIED, 0
        for pending, clear in self.clears.items():
            self.ended[pending] = REJECTED, clear.removed
        self.clears.clear()


class CommandMachine(SubscriberMachine):
    """One subscription and its commands; another agent's packages lie in between."""

    @initialize(packages=st.sampled_from([1, 3, 100]))
    def begin(self, packages: int) -> None:
        self.prepare()
        self.packages, self.model, self.commands = packages, Model(), list[str]()
        self.start()

    def start(self) -> None:
        self.open = ExitStack()
        self.worker = Worker(
            self.url,
            self.feed.journal,
            self.feed.blobs,
            limits=GroupLimits(packages=self.packages, passed_s=0),
        )
        self.follower = self.open.enter_context(following(self.worker))

    def teardown(self) -> None:
        if hasattr(self, "open"):
            self.open.close()
        super().teardown()

    @rule(number=st.integers(0, 4), own=st.booleans())
    def add(self, number: int, own: bool) -> None:
        path = f"/own/{number}" if own else "/other"
        node = page(path, self.model.end)
        offset = self.feed.add(node, agent="main" if own else "other")
        self.model.end = offset + 1
        if own:
            self.model.own.append(offset)

    @rule(desired=st.sampled_from(DesiredState))
    def control(self, desired: DesiredState) -> None:
        command_id = self.feed.control("sub", desired)
        self.model.desired = desired
        self.model.ended[command_id] = APPLIED, 0
        self._obeyed(command_id)

    @rule(data=st.data())
    def clear(self, data: Any) -> None:
        up_to = data.draw(st.integers(-1, self.model.end + 1))
        command_id = self.feed.clear("sub", up_to)
        self.model.clears[command_id] = Clear(min(up_to, self.model.end - 1))
        self._obeyed(command_id)

    @rule(data=st.data())
    def clear_another_agents(self, data: Any) -> None:
        up_to = data.draw(st.integers(-1, self.model.end))
        command_id = self.feed.clear("sub", up_to, agent="other")
        self.model.ended[command_id] = REJECTED, 0
        self._obeyed(command_id)

    @rule(data=st.data())
    def reset(self, data: Any) -> None:
        offset = data.draw(st.integers(-1, self.model.end - 1))
        command_id = self.feed.reset("sub", offset)
        self.model.reset(command_id, offset)
        self._obeyed(command_id)

    @precondition(lambda self: self.commands)
    @rule(data=st.data())
    def send_a_command_again(self, data: Any) -> None:
        wanted = data.draw(st.sampled_from(self.commands))
        partition = self.feed.journal.partition_of(TOPICS.command, "sub")
        for offset in range(self.feed.journal.bounds(TOPICS.command, partition).next):
            record = self.feed.journal.read_at(TOPICS.command, offset, partition)
            if record is not None and wanted.encode() in record.value:
                self.feed.again(record)
                break
        self.follower.catch_up()

    def _obeyed(self, command_id: str) -> None:
        self.commands.append(command_id)
        self.follower.catch_up()
        self._run()

    @rule()
    def restart(self) -> None:
        self.open.close()
        self.worker.die()
        eventually(lambda: self._rows(LEASE_SESSIONS) == [(0,)], interval=0.005)
        self.start()
        self._run()

    @rule()
    def run(self) -> None:
        self._run()

    @rule(steps=st.integers(1, 3))
    def die_in_the_middle(self, steps: int) -> None:
        """Step a little and start anew; the model need not know how far that came."""
        if self.worker.control.desired("main") is not DesiredState.STOP:
            session = self.worker.session or self.worker.begin()
            for _ in range(steps):
                session.step()
        self.restart()

    def _run(self) -> None:
        """Let the subscription do all that it may, as its thread would."""
        self.model.run()
        worker = self.worker
        if worker.control.desired("main") is DesiredState.STOP:
            worker.end()
            return
        if worker.session is not None and worker.session.position.epoch != worker.lease.epoch():
            worker.end()
        worker.run(self._is_where_the_model_is)

    def _is_where_the_model_is(self) -> bool:
        stored = self._rows("SELECT log_offset FROM bookkeeping.position")
        pending = self._rows("SELECT command_id FROM bookkeeping.clear_command")
        offset = stored[0][0] if stored else -1
        return offset == self.model.position and {one for (one,) in pending} == set(
            self.model.clears
        )

    @invariant()
    def content_is_the_fold_of_what_was_imported(self) -> None:
        if hasattr(self, "worker"):
            records = {record.offset: record for record in self.feed.records()}
            imported = [records[offset] for offset in self.model.imported]
            assert content_in(self.connection) == fold(imported, self.feed.blobs)

    @invariant()
    def every_command_ended_as_it_should_and_counts_are_exact(self) -> None:
        if not hasattr(self, "worker"):
            return
        self.worker.send_statuses()
        reported = self.feed.command_statuses()
        assert len(reported) == len({(one.command_id, one.state) for one in reported})
        ended = {s.command_id: (s.state, s.removed) for s in reported if s.state is not SEEN}
        assert ended == self.model.ended
        assert {s.command_id for s in reported} == set(self.commands)
        statuses = [s for s in self.feed.statuses() if s.status is Status.REMOVED]
        assert len(statuses) == self.model.times_removed
        assert {s.offset for s in statuses} <= set(self.model.own)

    @invariant()
    def what_was_asked_is_stored(self) -> None:
        if hasattr(self, "worker"):
            stored = self._rows("SELECT desired FROM bookkeeping.subscription_control")
            assert (stored[0][0] if stored else "RUN") == self.model.desired.value
            assert len(self._rows("SELECT FROM bookkeeping.audit")) == len(self.commands)


def test_r19_r25_a_subscription_applies_as_the_model_says(database_url: str) -> None:
    machine = type("Machine", (CommandMachine,), {"url": database_url})
    play(machine, examples(30), steps=20)
